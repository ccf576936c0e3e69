"""The contracts every component fulfils: named tuples of pure functions, and the data that pass between them.

Shapes below are for one site; the simulation engine adds an axis of sites by `vmap`, the deployed engine does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from wardround.core.components.generation import Generation
from wardround.core.quality import Quality

Array = jax.Array | np.ndarray[Any, Any]
Key = jax.Array
Tree = Any
"""A nest of dicts, tuples and arrays, as JAX understands it."""
Params = dict[str, Any]
"""Flat: "dense_1/kernel" names one array, so a layer split is a predicate on names."""
Units = tuple[tuple[str, tuple[str, ...]], ...]
"""The layer whose units (or filters) lie along each axis of an array, "" where none do: ("dense_1/kernel", ("dense_0",
"dense_1")). Inputs and outputs are no units. An axis may hold a layer's units several times, the units changing
fastest, as after the flattening of an image."""
Report = dict[str, Any]
"""What a query or meter tells: plain values that JSON can hold."""
TaskKind = Literal["classification", "regression", "survival", "segmentation"]


class Task(NamedTuple):
    """What is predicted from what: the shape of one row, and the labels (none for regression and segmentation).

    With `horizons` it is survival: the classes are the intervals of time between them, the last one beyond them all. A
    label of (classes + k) then means that follow-up ended when the event was still to come in class k or a later one.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    target: str = "target"
    horizons: tuple[float, ...] = ()
    segmentation: bool = False
    """Whether a row is an image, and its label a mask: 1 at every pixel that belongs to what is looked for."""

    @property
    def kind(self) -> TaskKind:
        """What everything that depends on the kind of task asks: loss, figures, sections of a report."""
        if self.segmentation or self.horizons:
            return "segmentation" if self.segmentation else "survival"
        return "classification" if self.classes else "regression"

    @property
    def regression(self) -> bool:
        return self.kind == "regression"

    @property
    def survival(self) -> bool:
        return bool(self.horizons)

    @property
    def classification(self) -> bool:
        return self.kind == "classification"

    @property
    def binary(self) -> bool:
        """Whether there are two classes, one of which is looked for."""
        return self.classification and len(self.classes) == 2

    @property
    def outputs(self) -> int:
        """Numbers the last layer gives: one a class, or the one value of a regression; of a segmentation, a pixel."""
        return max(1, len(self.classes))

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Of one row's label: a single number, or a mask as large as the image."""
        return self.shape[:2] if self.segmentation else ()

    @property
    def label_type(self) -> Any:
        return LABEL_TYPES[self.kind]


LABEL_TYPES = {"classification": np.int32, "regression": np.float32, "survival": np.int32, "segmentation": np.uint8}


class Batch(NamedTuple):
    """Rows to learn from; rows whose mask is 0 are padding and must not count."""

    x: Array
    y: Array
    mask: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Message:
    """What travels between the server and a site.

    `arrays` is all that carries information and is what privacy transforms see. `meta` holds public routing words
    (a phase, a layer's name); it is fixed at compile time, so a new value means a new program.

    A site's answer holds `weight`, a scalar, and otherwise only arrays that are ALREADY multiplied by it: the sum of
    the answers is then enough for a weighted mean, which is what streaming and secure sums need.
    """

    arrays: dict[str, Tree]
    meta: tuple[tuple[str, str], ...] = field(default=(), metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shard:
    """The rows of one site as its client function sees them: in the random order of this round, pass after pass.

    A pass begins at row `first` and takes `longest` places, the number of rows of the largest site batched together
    with this one: loops run to its end, so that all sites of a batch stop together, and rows past the own end are
    masked. Other sites' rows may stand before and behind; `padding` rows at least stand behind the last.
    """

    x: Array
    y: Array
    first: Array
    rows: Array
    longest: Array
    site: Array
    padding: int = field(default=64, metadata={"static": True})

    def batch(self, visit: Array | int, index: Array | int, size: int) -> Batch:
        """The `index`-th batch of `size` rows of pass `visit`; rows past the end of the site have mask 0."""
        if size > self.padding:
            raise ValueError(f"a batch of {size} rows: the algorithm must declare largest_batch={size}")
        place = index * size
        at = self.first + visit * self.longest + place
        mask = (place + jax.numpy.arange(size) < self.rows).astype(jax.numpy.float32)
        x = jax.lax.dynamic_slice_in_dim(self.x, at, size)
        return Batch(intensities(x), jax.lax.dynamic_slice_in_dim(self.y, at, size), mask)


def intensities(x: Array) -> Array:
    """Bytes are image intensities and become numbers from 0 to 1; everything else is left alone."""
    return x.astype(jax.numpy.float32) / 255.0 if x.dtype == jax.numpy.uint8 else x


class Model(NamedTuple):
    """A trainable predictor: `loss` and `gradient` are means over the rows whose mask is 1 (0 where there are none).

    `predict` gives probabilities of shape (rows, classes), values of shape (rows,) for a regression, or the probability
    of every pixel, (rows, height, width), for a segmentation. `gradient` stands apart from `loss` so that a private
    model can replace it by a clipped and noised one.

    A model that declares `units` computes with parameters of any number of units in its layers.
    """

    init: Callable[[Key], Params]
    loss: Callable[[Params, Batch, Key], Array]
    predict: Callable[[Params, Array], Array]
    gradient: Callable[[Params, Batch, Key], Params]
    coupled: tuple[str, ...] = ()
    """Layers in which what a row gives depends on the other rows of its batch; no bound per patient holds there."""
    units: Units = ()
    features: Callable[[Params, Array], Array] | None = None
    """Of a segmentation: what the last layer sees of every pixel, (rows, height, width, features)."""
    generation: Generation | None = None
    """Of a model that makes up images with masks."""


class Aggregator(NamedTuple):
    """How the answers of the sites become one.

    A linear one is given the SUM of the answers, so it streams and works under a secure sum; any other is given
    their stack, with the sites along the first axis. `each`, if there is one, is done to every answer before it is
    added. `reduce` gives the mean (or its robust kin) of every array that the sites had multiplied by their weight.
    Sites that did not answer have weight 0. A linear aggregator with `each` streams but is not for secure sums.
    """

    init: Callable[[Message], Tree]
    reduce: Callable[[Tree, Message], tuple[Message, Tree]]
    linear: bool
    each: Callable[[Tree, Message], Message] | None = None
    fewest: int = 1
    """Answers below which the result would be meaningless; the engine refuses before the first round."""
    needs: tuple[str, ...] = ()
    """Arrays that answers must carry for this aggregator beside the update, such as "class_shares".

    "site" asks the engine for one more array of the stack, not multiplied by the weight: which site answered in each
    slot (the number of sites where it is empty); in what `init` is given, it holds the number of every site.
    """
    tells: Callable[[Tree], Mapping[str, Array]] | None = None
    """What the aggregator's state has to tell the round's record, as an algorithm's server does."""
    products: bool = False
    """Looks at nothing but inner products of answers and one weighted sum, which two servers find unseen."""

    @property
    def is_plain_sum(self) -> bool:
        return self.linear and self.each is None


class Personal(NamedTuple):
    """How a site makes the model it uses itself from what the server sent, what it kept, and its own rows."""

    fit: Callable[[Message, Tree, Shard, Key], Params]
    passes: int = 1


class Tailoring(NamedTuple):
    """How the server's message, and what becomes of an answer, differ from site to site.

    The server does both: a site sees its own message and never what is broadcast. Messages come in few kinds, each of
    its own shapes, for which a program is compiled; what `fit` gives has the same shapes for all. `site` and `key` (a
    function of seed, round and site) may be traced, `kind` never is.
    """

    kinds: int
    kind_of: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
    """From sites' numbers to the kinds of their messages, from 0 on."""
    cut: Callable[[Message, int, Array, Key], Message]
    """(what is broadcast, kind, site, key) to what this site is sent, before any transform."""
    fit: Callable[[Message, Message, int, Array, Key], Message]
    """(what is broadcast, a site's answer, kind, site, key) to the answer as it is added to those of the others."""


class Algorithm(NamedTuple):
    """How sites learn together, in the order in which a round happens."""

    init: Callable[[Params, int], Tree]
    """Server state from the first model and the number of sites in the study."""
    init_client: Callable[[Params], Tree]
    """What a site keeps between rounds; an empty tuple when nothing."""
    broadcast: Callable[[Tree], Message]
    client: Callable[[Message, Tree, Shard, Key], tuple[Message, Tree]]
    """Pure and batchable: one site's answer, and what it keeps."""
    aggregator: Aggregator
    server: Callable[[Tree, Message], Tree]
    params: Callable[[Tree], Params]
    """The common model in the server's state."""
    predict: Callable[[Params, Array], Array]
    """From the parameters a site uses (the common ones, or its `personal` ones) to its predictions."""
    passes: int = 1
    """Times a client goes through its rows in a round; the engine shuffles each pass anew."""
    personal: Personal | None = None
    pools: bool = False
    """A baseline that puts all rows in one place: simulation only, for comparison."""
    tells: Callable[[Tree], Mapping[str, Array]] | None = None
    """What the server's state has to tell the round's record: numbers, or arrays with one number a site."""
    largest_batch: int = 64
    """Rows of the largest batch that the client, or its personal fit, asks for at a time."""
    silent: bool = False
    """A baseline in which no site sends anything (each learns alone, or all rows lie in one place)."""
    part: str = "train"
    """Which of its rows a site's client is given: a probe may ask about those held out for validation or test."""
    tailoring: Tailoring | None = None
    """Where every site is sent a message of its own; none: all are sent what is broadcast."""


class Transform(NamedTuple):
    """What happens to a message on its way: compress, drop, clip, noise, mask.

    The server does `down` to what it sends and a site undoes it with `receive`; the site does `up` to its answer and
    the server undoes it with `release` (on each answer, or on their sum where `sum_only`). In a chain, `receive` and
    `release` run in reverse order. The state is the server's; what sites must know of it travels in the message.
    """

    init: Callable[[Message], Tree]
    down: Callable[[Tree, Message, Key], Message]
    receive: Callable[[Message], Message]
    up: Callable[[Message, Message, Key], Message]
    """(what came down, the answer, a key) to the answer as it leaves; NaN in it stops the study and names the site."""
    release: Callable[[Tree, Message], Message]
    sum_only: bool = False
    """The server sees nothing but the sum of the answers; only the last of a chain may be so."""
    products_only: bool = False
    """The server sees the inner products of the answers and one weighted sum; only the last of a chain may be so."""
    fewest: int = 1
    """Answers below which a round would tell single ones; refused before the first round."""
    most: int | None = None
    """Answers above which their sum would not be right any more; refused before the first round."""
    at_site: Callable[[Message, Message, Key], Message] | None = None
    """`up` as a real site does it, where the simulation's draws noise that would protect nobody."""
    bytes_up: Callable[[Message], int] | None = None
    """Bytes of an answer on the wire, where they are not those of its arrays."""
    limit: str = ""
    """What an answer must keep to lest it becomes NaN, in words."""
    words: str = ""
    """Who sees what of the answers, a sentence for reports and for whoever approves the study."""
    coded: bool = False
    """An answer leaves in a code that is read one by one; what hides single answers cannot follow."""
    codes: frozenset[str] = frozenset()
    """The codes in which arrays travel, each with its direction ("up quantize"); none can be read twice."""
    init_carried: Callable[[Message], Tree] | None = None
    """What a site carries for it from round to round, at first, from an answer of zeros; none carries nothing."""
    up_carried: Callable[[Message, Message, Tree, Key], tuple[Message, Tree]] | None = None
    """`up` where something is carried: given it before the key, and giving what is carried on beside the answer."""
    tailoring: Tailoring | None = None
    """Where it works otherwise for one site than for another: `cut` marks the message by which it tells them apart."""
    choices: tuple["Transform", ...] = ()
    """Those among which it chooses by the size of a message; what leaves is as large as one of theirs."""

    @property
    def must_be_last(self) -> bool:
        return self.sum_only or self.products_only


OWED = "privacy/owed"
"""An array of an answer that says which noise it must get before it leaves; no engine lets it pass."""


@dataclass(frozen=True)
class Site:
    """A site as a query sees it: its name and its own table (a pandas data frame). Never leaves the site."""

    name: str
    table: Any
    patients: Any = None
    """Whose each row is, where patients have several: whatever is told of enough patients counts each once."""


class Query(NamedTuple):
    """A question to every site that is no training; ordinary Python, any library. Only the answer leaves."""

    ask: Callable[[Message, Site], Message]
    combine: Callable[[Sequence[Message]], Report]


@dataclass(frozen=True)
class RoundRecord:
    """What is written down about one round."""

    round: int
    sites: tuple[str, ...]
    """Who took part; empty when there were too many to name (then `count` tells how many)."""
    count: int
    rows: int
    seconds: float
    cpu_seconds: float
    bytes_down: int
    bytes_up: int
    measures: Mapping[str, Any] = field(default_factory=dict)
    """Validation figures and what an algorithm reports of itself."""


class Meter(NamedTuple):
    """Adds something up over the rounds: traffic, energy, privacy spent, contributions. State is plain JSON."""

    init: Callable[[], Report]
    observe: Callable[[Report, RoundRecord], Report]
    report: Callable[[Report], Report]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Progress:
    """All that a run has learned so far, and exactly what a checkpoint holds."""

    server: Tree
    aggregator: Tree
    transform: Tree
    clients: Tree
    """What the sites keep, stacked along a first axis of sites; in deployment each site keeps its own."""
    carried: Tree = ()
    """What the sites carry on for the transforms, stacked in the same way; in deployment with each site, too."""


class Scores(NamedTuple):
    """Predictions on one part of every site's rows, site after site; `first[i]:first[i + 1]` are site i's.

    Of a segmentation no picture is kept but its counts (`core.overlap`): `predicted` (rows, 3), `actual` (rows, 2).
    """

    predicted: np.ndarray[Any, Any]
    actual: np.ndarray[Any, Any]
    first: np.ndarray[Any, Any]
    times: np.ndarray[Any, Any] | None = None
    """Of survival: how long each patient was followed up."""


class Engine(Protocol):
    """The one seam between algorithms and the world: simulated on this machine, or over real hospitals."""

    @property
    def sites(self) -> Sequence[str]: ...

    def begin(self, algorithm: Algorithm, params: Params) -> Progress: ...

    def train(
        self, algorithm: Algorithm, progress: Progress, rounds: Sequence[tuple[int, np.ndarray[Any, Any]]]
    ) -> tuple[Progress, list[RoundRecord]]:
        """Do these rounds, each a number and the indices of the sites that take part."""
        ...

    def judge(self, algorithm: Algorithm, progress: Progress, part: str) -> Quality:
        """How well the model that each site would use does on one part of its rows."""
        ...

    def ask(self, query: Query, message: Message) -> Report: ...
