"""How large a site's answer in a round would be, measured by preparing its rows as the study would; nothing is trained.

Other sites may know categories that this one lacks, so the real answer can be somewhat larger.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import numpy as np

from wardround.core.chain import UNCOMPRESSED, choices_in, tailored
from wardround.core.contracts import Message
from wardround.data.load import LoadedData, load
from wardround.data.noised_preparation import StatisticsNoise
from wardround.data.table import Table
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site.release.model_shapes import with_some_noise
from wardround.engine.split_round import answer_shapes, kind_at, plain_message
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.release_noise import statistics_noise
from wardround.study.transform_chain import transform_of

HEADER = {"status": "ok", "study": "x" * 40, "round": 1000, "nonce": "x" * 32, "site": "x" * 20}
"""As long as the header of an answer usually is."""
ARRAYS: Mapping[str, str] = {
    "weight": "how many patients it trained on",
    "update": "how far its patients moved the model, times that number",
    "control": "how its gradients differ from the average, times that number",
    "class_shares": "the share of each outcome among its patients, times that number",
    "spectra": "the mean amplitudes of the lowest frequencies over all its training images, none of fewer images than a"
    " cell, in steps of half an image: how bright, coloured and coarse they are on average; no picture; all sites get"
    " them, and a secure sum does not hide them",
    "told": "whether it tells them",
    "layer": "in every round one whole layer of the network that it trained on its own patients, times that number; the"
    " coordinator reads every site's by itself, and no secure sum hides it",
    "image_statistics": "the means over all its training images of statistics of image and mask (brightness, noise,"
    " focus, how much is covered, number and size of structures), none of fewer images than a cell, in steps of two"
    " images, times the weight; no picture; in a place of its own beside those of other sites, so that a secure sum"
    " does not hide them unless styles is 1",
    "mask_statistics": "the means over all its training images of statistics of their masks (how much is covered,"
    " number, size and shape of structures, how many are empty), none of fewer images than a cell, in steps of two"
    " images, times the weight; no mask; in a place of its own beside those of other sites, so that a secure sum does"
    " not hide them",
    "generator_slope": "how the central generator must change for the discriminator, which this site trained on its own"
    " images and masks and keeps, to take drawn images for real, times the weight; no image, but a coordinator that"
    " chooses the generator learns what that discriminator looks for; noise covers it under [privacy] only",
}
"""What an answer's arrays tell, as in docs/explanation/what-leaves-a-site.md."""


@dataclass(frozen=True)
class AnswerSize:
    """What leaves a site in one round: numbers in each array, and bytes on the wire."""

    numbers: dict[str, int]
    bytes: int
    parameters: int
    """Numbers that the model has."""
    statistics: tuple[str, ...] = ()
    """Layers whose running statistics of the rows are among what leaves."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """What a transform that chooses by this site's line chose for what comes ("down") and leaves ("up")."""


def example_noise(study: Study) -> StatisticsNoise | None:
    """A private study's own preparation is not known yet: for the size of an answer hardly any noise will do."""
    found = statistics_noise(study, study.study.seed)
    return found if found is None or found.noise is None else found._replace(noise=1e-6)


def prepared_rows(study: Study, table: Table) -> LoadedData:
    """This site's rows, split and prepared as in the study, as far as it can be told from them alone."""
    data = study.data
    return load(
        table,
        seed=study.study.seed,
        shares=tuple(data.shares),
        shares_at={name: data.shares_at(name, study.study.user) for name in table.sites},
        by=data.split_by or "",
        missing_target=data.missing_target,
        empty_sites="keep",
        private=example_noise(study),
        **data.preparation.model_dump(),
    )


def answer_of(study: Study, table: Table, loaded: LoadedData) -> AnswerSize:
    """What this site's answer would hold; nothing is trained."""
    federation = loaded.federation
    sites = list(dict.fromkeys([*table.sites, *([study.study.user] if study.study.user else [])]))
    transform = transform_of(study, sites)
    algorithm = tailored(assemble.build(with_some_noise(study), own_method(study), federation.task, sites), transform)
    model = assemble.model_of(study, federation.task)
    params = model.init(jax.random.key(0))
    server = algorithm.init(params, max(2, len(sites)))
    row = tuple(jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in (federation.x, federation.y))
    kind = kind_at(algorithm, 0)
    made = answer_shapes(algorithm, server, algorithm.init_client(params), row, kind)
    key = jax.random.key(0)

    def way(made: Message) -> tuple[Message, Message]:
        sent = transform.down(transform.init(made), plain_message(algorithm, server, kind), key)
        return sent, transform.up(sent, made, key)

    sent, left = jax.eval_shape(way, made)
    # What leaves cannot be read, or is a code: told is what it stands for.
    hidden = transform.bytes_up is not None or transform.coded
    numbers = {
        name: sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(part))
        for name, part in (made if hidden else left).arrays.items()
    }
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), left)
    parameters = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params))
    size = len(encode(HEADER, Message({}))) + transform.bytes_up(left) if transform.bytes_up else None
    update = made.arrays.get("update", {})
    names = set(update) if isinstance(update, dict) else set()
    told = tuple(one for one in model.coupled if f"{one}/mean" in names or "layer" in made.arrays)
    bytes_up = size or len(encode(HEADER, empty))
    return AnswerSize(numbers, bytes_up, parameters, told, choices_in(sent, left))


def own_line(choices: Mapping[str, str]) -> tuple[str, ...]:
    """What this site is sent and sends, where a transform chooses by its line.

    >>> own_line({"down": "moderate", "up": "none"})
    ('For the line of this site, that is: the model comes by the scheme moderate, your answers leave uncompressed.',)
    """
    if not choices:
        return ()
    down, up = (
        "uncompressed" if way == UNCOMPRESSED else f"by the scheme {way}" for way in (choices["down"], choices["up"])
    )
    return (f"For the line of this site, that is: the model comes {down}, your answers leave {up}.",)
