"""The closed list of all that may leave a site for a study: derived from the approved words, shown, and counted down.

Each entry names a kind of answer, from which patients it is, how many of it leave at most, how large one is and how
precise. What is not on the list does not leave. The list follows from the study, the columns that it reads here, the
policy's smallest cell and this version of the program; it is stored with the approval. If any of these changes so that
more would leave, the study is not answered until somebody has approved it again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from wardround.core.components.recipes import Recipe
from wardround.core.components.terms import Extent
from wardround.core.errors import Refusal
from wardround.core.text import format_bytes
from wardround.data.derived_columns import free_texts
from wardround.deploy.site.release.model_shapes import MessageShapes, bytes_of, largest_shapes, numbers_of
from wardround.deploy.site.release.partner_questions import (
    all_settings,
    numbers_in,
    numbers_in_probe,
    preparation_queries,
    terms_for,
)
from wardround.deploy.trust.transcript.entries import LARGEST
from wardround.queries.cards import MOST_CLASSES
from wardround.queries.columns import picture_shape
from wardround.runs.folder import digest
from wardround.study.data_rules import MASK, is_segmentation
from wardround.study.file import Study
from wardround.study.monitor_section import QUERY, MonitorSection
from wardround.study.partners import asks_of
from wardround.study.release_noise import STATISTICS, release_noise
from wardround.study.transform_chain import transform_of

Part = Literal["training", "validation", "test", "whole table", "all parts", "none"]
ASSUMED = 10
"""Sites that are reckoned with where the study does not name them."""
FILLED = 50
"""Columns that this site does not have and others may bring, where the study fills them."""
ROOM, FIGURES = 1 << 12, 1 << 16
"""Bytes of an answer beside its arrays, and of the quality figures at the end, which are words."""
HEADER = 1 << 20
"""Bytes of a request beside its arrays."""
FOR_A_VALUE = 64
"""Bytes that a number or a name takes in the answer to a query, at most on average."""
FOR_A_SITE = 1 << 15
"""Bytes that each site adds to a letter of a secure sum: keys, certificates, sealed shares, commitments."""
IN_A_PARCEL = 64
"""Bytes that each site adds to what is sealed for a second server, at most: a summand of the products."""
REFUSALS = 100
"""Different refusals of a study that are told and written down; further ones are told in one fixed sentence."""
PARTS: Mapping[str, Part] = {"train": "training", "validation": "validation", "test": "test"}


@dataclass(frozen=True)
class Release:
    """One kind of answer, such as "round" or "query/moments"."""

    kind: str
    part: Part
    times: int
    bytes: int
    """Of one answer, at most."""
    request: int
    """Bytes of a request for it, at most."""
    precision: str
    cell: int = 1
    """Groups of fewer patients are not told of; where it grows, less is told."""
    noised: bool = False
    arrays: tuple[str, ...] | None = None
    """Names of the arrays of an answer; none: the component says."""


SPARE_LOOKS = 3
"""A coordinator that died may do a round again among other sites, and look at another model after it."""
Releases = tuple[Release, ...]


def sites_of(study: Study) -> list[str]:
    """The sites' names, or as many as are reckoned with where the study names none."""
    named = list(study.deploy.sites) or [f"site {number}" for number in range(1, ASSUMED + 1)]
    return list(dict.fromkeys([*named, *([study.study.user] if study.study.user else [])]))


def release_list(study: Study, columns: Mapping[str, str], cell: int) -> Releases:
    """All that may leave; `columns` are those that the study reads here, each with its kind."""
    refusal = Release("refusal", "none", REFUSALS, ROOM, 0, "in words that quote no value of a patient", arrays=())
    if study.monitor is not None:
        return (monitor_windows(study.monitor, cell), refusal)
    shapes = largest_shapes(study, row_shape(study, columns), most_classes(study, columns), sites_of(study))
    silent = [
        nothing("settle", 1, HEADER),
        nothing("begin", 1 + trainings(study)[0] + sum(one[1] for one in probe_times(study)), request_bytes(shapes)),
        Release(
            "finish",
            "none",
            1,
            ROOM,
            request_bytes(shapes) + HEADER + LARGEST,
            "that it is done, and a signature under the transcript that came with it",
            arrays=(),
        ),
        refusal,
    ]
    found = [*statistics(study, columns, cell), *rounds(study, shapes), *partner_rounds(study, shapes)]
    return (*found, *looks(study, shapes, cell), *silent)


def nothing(kind: str, times: int, request: int) -> Release:
    return Release(kind, "none", times, ROOM, request, "that it is done, and nothing else", arrays=())


# ---- before training ----


def statistics(study: Study, columns: Mapping[str, str], cell: int) -> list[Release]:
    """Answers to queries, of the preparation and of the choice of partners; and how many rows there are."""
    asked: dict[str, tuple[Recipe, int]] = {}
    for recipe, times in [*preparation_times(study), *((one, terms_for(one).times) for one in asks_of(study).queries)]:
        asked[recipe.name] = recipe, times + (asked[recipe.name][1] if recipe.name in asked else 0)
    told = f"counts in cells of {cell}, values on a grid" if cell > 1 else "exact"
    noised = {one.name for one in asks_of(study).queries if asks_of(study).epsilon}
    precisions = {name: "the noise is debited from your privacy ledger" for name in STATISTICS if study.privacy}
    if study.privacy is not None:
        noised |= precisions.keys()
        precisions["cards"] = "names and kinds of columns, labels of the outcome, numbers of rows: taken to be public"
    extent = Extent(sites=len(sites_of(study)), columns=len(columns))
    found = []
    for name, (recipe, times) in asked.items():
        numbers = numbers_in(with_categories(recipe, study), extent)
        part: Part = "whole table" if terms_for(recipe).rows == "table" else "training"
        size = ROOM + FOR_A_VALUE * numbers
        precision = precisions.get(name, told)
        found.append(Release(f"query/{name}", part, times, size, HEADER + size, precision, cell, name in noised))
    precision = "exact, since noise is reckoned from it" if study.privacy else told
    categories = FOR_A_VALUE * most_features(study, columns)
    rows = Release("prepare", "all parts", 1, ROOM, HEADER + 4 * categories, precision, cell, arrays=("rows",))
    return [*found, rows]


def monitor_windows(said: MonitorSection, cell: int) -> Release:
    """The one answer of a study with [monitor]: a second question, in whatever words, has no place on the list."""
    size = ROOM + FOR_A_VALUE * numbers_in(said.query, Extent())
    told = f"counts in cells of {max(cell, said.smallest_cell)}, mean risks on a grid" if cell > 1 else "exact"
    return Release(f"query/{QUERY}", "whole table", 1, size, HEADER, told, cell)


def with_categories(recipe: Recipe, study: Study) -> Recipe:
    """With the study's limit of categories, where the recipe names none."""
    needs = recipe.name == "category_counts" and "most" not in dict(recipe.settings)
    more = (("most", study.data.preparation.most_categories),) if needs else ()
    return recipe._replace(settings=tuple(sorted((*recipe.settings, *more))))


def preparation_times(study: Study) -> list[tuple[Recipe, int]]:
    """The queries of the preparation, and how often each is asked (see `data.preparation_fit`)."""
    said = study.data.preparation
    fewer = {} if said.smallest_cell == 1 else {"histogram": 1}
    fewer |= {} if said.impute == "most_frequent" else {"category_counts": 1}
    return [(one, fewer.get(one.name, terms_for(one).times)) for one in preparation_queries(study)]


def most_statistics(releases: Releases) -> int:
    """Answers to queries and analyses that the study may ask for."""
    return sum(one.times for one in releases if one.kind.startswith(("query/", "analysis/")))


def row_shape(study: Study, columns: Mapping[str, str]) -> tuple[int, ...]:
    """Of one patient as the model may see it: an image, or at most so many numbers."""
    shapes = [shape for name, kind in columns.items() if name != MASK and (shape := picture_shape(kind)) is not None]
    return shapes[0] if shapes else (most_features(study, columns),)


def most_features(study: Study, columns: Mapping[str, str]) -> int:
    """Numbers that a model may see of a patient: other sites may know categories that this one does not."""
    wide = study.data.preparation.most_categories * len(sites_of(study))
    extra = int(study.data.preparation.indicators)
    target, time = study.data.settings.get("target"), study.data.time
    cleaning = study.data.cleaning
    words = [column for column, kind in cleaning.kinds.items() if kind == "text"]
    named = {*(study.data.settings.get("categories") or ()), *words, *cleaning.recode}  # recoded numbers may be words
    free = free_texts(cleaning.texts, cleaning.rules)
    own = sum(
        extra + (wide if kind not in ("number", "flag", "empty") or column in named else 1)
        for column, kind in columns.items()
        if column not in (target, time) and column not in free
    )
    own += len(cleaning.rules) + sum(len(one.words) or one.features for one in cleaning.texts.values())
    return max(1, own + (FILLED * (1 + extra) if study.data.missing_columns == "fill" else 0))


def most_classes(study: Study, columns: Mapping[str, str]) -> int:
    """Labels that the outcome may have; none for a quantity or a mask."""
    if study.data.survival is not None:
        return len(study.data.survival.horizons) + 1
    if study.data.settings.get("task") == "regression" or is_segmentation(study):
        return 0
    return 2 if columns.get(str(study.data.settings.get("target"))) == "flag" else MOST_CLASSES


def is_noised(study: Study) -> bool:
    """Whether what is told of training patients in a round is noised."""
    return study.privacy is not None


def rounds(study: Study, shapes: MessageShapes) -> list[Release]:
    """The answers of training, in the clear or masked; and the word that there is none."""
    transform, times = transform_of(study), study.study.rounds
    told = "noised" if is_noised(study) else "single precision, without noise"
    told = f"compressed; {told}" if transform.coded else told
    sites = len(sites_of(study))
    found = []
    if transform.sum_only:
        size = ROOM + 8 * numbers_of(shapes.answer) + FOR_A_SITE * sites
        room = HEADER + 2 * FOR_A_SITE * sites + bytes_of(shapes.sent)
        found.append(Release("secure", "training", times, size, room, f"masked; only sums are opened; {told}"))
    elif transform.products_only:
        size = ROOM + 8 * numbers_of(shapes.answer) + IN_A_PARCEL * sites
        room, words = request_bytes(shapes), f"in two halves for two servers; {told}"
        found.append(Release("halves", "training", times, size, room, words, arrays=("masked",)))
    else:
        names = tuple(sorted(shapes.answer.arrays))
        size, room = ROOM + bytes_of(shapes.answer), request_bytes(shapes)
        found.append(Release("round", "training", times, size, room, told, noised=is_noised(study), arrays=names))
    if not is_noised(study):
        words = "one word in place of an answer that is not finite"
        found.append(Release("diverged", "training", times + sum(answers_for_choice(study)), ROOM, 0, words, arrays=()))
    return found


def request_bytes(shapes: MessageShapes) -> int:
    """What the server says of a model, as it is or as it travels, and the model once more."""
    return HEADER + bytes_of(shapes.said) + bytes_of(shapes.sent) + bytes_of(shapes.params)


def trainings(study: Study) -> tuple[int, int]:
    """In how many trainings, while partners are chosen, this site takes part; and of how many rounds each is."""
    asks = asks_of(study)
    if not asks.trains:
        return 0, 0
    return asks.trainings(len(sites_of(study))), study.study.rounds if asks.rounds is None else asks.rounds


def probe_times(study: Study) -> list[tuple[Any, int]]:
    return [(one, one.most(len(sites_of(study)))) for one in asks_of(study).probes]


def answers_for_choice(study: Study) -> list[int]:
    many, long = trainings(study)
    return [many * long, *(times for _, times in probe_times(study))]


def partner_rounds(study: Study, shapes: MessageShapes) -> list[Release]:
    """What leaves while partners are chosen: trainings with some of the sites, and probes."""
    many, long = trainings(study)
    found = []
    if many:
        names, size = tuple(sorted(shapes.answer.arrays)), ROOM + bytes_of(shapes.answer)
        told = "single precision, without noise"
        found.append(Release("training", "training", many * long, size, request_bytes(shapes), told, arrays=names))
    sites = len(sites_of(study))
    for probe, times in probe_times(study):
        part = PARTS[str(all_settings(probe.recipe).get("part", "train"))]
        numbers = numbers_in_probe(probe, numbers_of(shapes.params), sites)
        models = bytes_of(shapes.params) * (2 + 2 * sites + probe.models(sites))
        size = ROOM + 4 * numbers
        told = "single precision, without noise"
        found.append(Release(f"probe/{probe.recipe.name}", part, times, size, HEADER + models, told))
    return found


# ---- how well a model does ----


def looks(study: Study, shapes: MessageShapes, cell: int) -> list[Release]:
    """Losses of validation patients as training goes on, and figures of test patients at the end."""
    every, last = study.evaluation.every, study.study.rounds
    watched = study.stopping is not None and study.stopping.user  # whether there is a loss to watch is asked beforehand
    times = -(-last // every) + int(watched) + SPARE_LOOKS
    if study.privacy is not None:
        return private_looks(study, shapes, cell)
    losses = f"mean loss on a grid of a patient's half step, rows in cells of {cell}" if cell > 1 else "exact"
    figures = f"on grids, none of fewer than {cell} patients" if cell > 1 else "exact"
    if cuts := study.evaluation.cuts:
        rounded = f" rounded at random to multiples of {cell}" if cell > 1 else ""
        figures += f"; and {2 * (len(cuts) + 1)} counts of patients by predicted risk and outcome{rounded}"
    room = request_bytes(shapes)
    arrays = ("loss", "right", "rows")
    return [
        Release("judge", "validation", times, ROOM, room, losses, cell, arrays=arrays),
        Release("figures", "test", 1, FIGURES, room, figures, cell, arrays=()),
    ]


def private_looks(study: Study, shapes: MessageShapes, cell: int) -> list[Release]:
    """The same under [privacy]: noised and debited, or nothing."""
    found, room = release_noise(study), request_bytes(shapes)
    told = "the noise is debited from your privacy ledger"
    losses = f"rows exact, taken to be public; {told}" if found.looks is not None else "nothing is told"
    figures = f"from one noised table; {told}" if found.figures is not None else "nothing is told"
    return [
        Release(
            "judge",
            "validation",
            found.look_count,
            ROOM,
            room,
            losses,
            cell,
            noised=found.looks is not None,
            arrays=("loss", "right", "rows"),
        ),
        Release("figures", "test", 1, FIGURES, room, figures, cell, noised=found.figures is not None, arrays=()),
    ]


# ---- stored with an approval ----


def hash_of(releases: Releases) -> str:
    return digest(to_json(releases))


def to_json(releases: Releases) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps([asdict(one) for one in releases]))
    return found


def from_json(content: Sequence[Mapping[str, Any]]) -> Releases:
    """As it was stored; refused where it is not a list of ours."""
    try:
        rows = [{**one, "arrays": None if one["arrays"] is None else tuple(one["arrays"])} for one in content]
        return tuple(Release(**one) for one in rows)
    except (KeyError, TypeError):
        raise Refusal("the stored list of releases is damaged", remedy="approve the study again") from None


def growth(approved: Releases, now: Releases) -> list[str]:
    """What would leave now and was not approved; none: no more than was."""
    before = {one.kind: one for one in approved}
    grown = []
    for one in now:
        old = before.get(one.kind)
        if old is None:
            grown.append(f"{name_of(one.kind)} would be new")
            continue
        larger = {
            f"{one.times} times, {old.times} approved": one.times > old.times,
            f"{one.bytes} bytes, {old.bytes} approved": one.bytes > old.bytes,
            f"of the {one.part} patients, {old.part} approved": one.part != old.part,
            f"groups of {one.cell} patients, {old.cell} approved": one.cell < old.cell,
            "without the approved noise": old.noised and not one.noised,
            "other arrays": old.arrays != one.arrays,
        }
        grown += [f"{name_of(one.kind)}: {what}" for what, yes in larger.items() if yes]
    return grown


# ---- in words ----

NAMES = {
    "prepare": "numbers of rows",
    "round": "answers of training",
    "secure": "masked answers of training",
    "halves": "answers of training in two halves",
    "training": "answers of training while partners are chosen",
    "diverged": 'the word "diverged"',
    "judge": "losses while training goes on",
    "figures": "quality figures at the end",
    "settle": "receipts for the agreed columns",
    "begin": "receipts for the first model",
    "finish": "receipts for the final model",
    "refusal": "refusals",
    "agree": "number of rows",
}


def name_of(kind: str) -> str:
    what, _, name = kind.partition("/")
    known = {"query": "statistics", "analysis": "sums for the analysis"}
    return NAMES.get(kind) or f"{known.get(what, 'answers to the probe')} {name}"


def sentences(releases: Releases) -> tuple[str, ...]:
    """The whole list for a person: what, from which patients, how often, how large, how precise."""
    return tuple(
        f"{name_of(one.kind)}: "
        f"{'nothing about patients' if one.part == 'none' else patients_of(one.part)}, "
        f"{'once' if one.times == 1 else f'at most {one.times:,} times'}, "
        f"at most {format_bytes(one.bytes)} each; {'noised; ' if one.noised else ''}{one.precision}."
        for one in releases
    )


def patients_of(part: str) -> str:
    return {"whole table": "all patients of the dataset", "all parts": "all patients"}.get(part, f"{part} patients")
