"""Analyses: methods that learn from sums over patients, in a few exchanges, where nothing is trained in rounds.

A regression by Newton's method, a survival curve, a principal component, a boosted tree: what the sites are asked next
follows from the sum of what they answered before. The functions are pure and compute in double precision, so the same
definition runs on one machine and over real hospitals, and gives what all rows in one place would give.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from wardround.core.contracts import Array, Message, Params, Report, Site, Tree

ColumnKind = Literal["number", "category", "text"]
NOISE = "noise/deviation"
"""The name under which a sum comes with the standard deviation of the noise in each of its numbers."""


class AgreedColumn(NamedTuple):
    """What all sites take a column to be; `levels` are the words of a category, in the agreed order.

    Of free text ("text") nothing is agreed on but that it is some.
    """

    kind: ColumnKind
    levels: tuple[str, ...] = ()


class Agreed(NamedTuple):
    """What is public before the first exchange: who takes part, and what the columns are."""

    sites: tuple[str, ...]
    columns: Mapping[str, AgreedColumn]


class FoundModel(NamedTuple):
    """A model that an analysis found, to be kept in a file and used for new patients."""

    params: Params
    target: str
    columns: Mapping[str, AgreedColumn]
    """What it predicts from, in order."""
    classes: tuple[str, ...] = ()
    """In the order of its probabilities; none where it predicts a number."""
    positive: int = 0
    """Of two classes the place of the one that is looked for."""


class ExchangeKind(NamedTuple):
    """What a message asks for, so that a site need not trust whoever asks to keep to the order of an honest run."""

    name: str
    most: int
    """So many different messages of this kind a site answers in a study."""
    fixed: tuple[str, ...] = ()
    """Arrays that are the same in all messages that have them: around two edges that differ, one patient would show."""


def kind_by_array(limits: Mapping[str, int], fixed: tuple[str, ...] = ()) -> Callable[[Message], ExchangeKind]:
    """Messages are told apart by the first of these arrays that they have."""

    def kind(message: Message) -> ExchangeKind:
        name = next((one for one in limits if one in message.arrays), "")
        return ExchangeKind(name, limits.get(name, 0), fixed)

    return kind


def kind_by_word(key: str, limits: Mapping[str, int], fixed: tuple[str, ...] = ()) -> Callable[[Message], ExchangeKind]:
    """Messages are told apart by this word beside their arrays."""

    def kind(message: Message) -> ExchangeKind:
        name = str(dict(message.meta).get(key, ""))
        return ExchangeKind(name, limits.get(name, 0), fixed)

    return kind


class ExpertQuestion(NamedTuple):
    """What an expert is asked between two exchanges; plain values, so that it can wait in a file."""

    key: str
    """What is judged, the same whenever it is asked."""
    number: int
    most: int
    words: str
    """What the rule says."""
    facts: Mapping[str, Any]
    """What is known of it: by name, for whoever shows it."""


class OwnNoise(NamedTuple):
    """Noise that an analysis adds itself: a patient is in at most so many Gaussian sums, each with this multiplier."""

    multiplier: float
    sums: int


class Analysis(NamedTuple):
    """In the order in which an exchange happens."""

    columns: tuple[str, ...]
    """What it reads of a site's table; a site's policy decides about them."""
    begin: Callable[[Agreed], Tree]
    """The first state, from what is public; refuses what cannot be computed before anybody is asked."""
    message: Callable[[Tree], Message | None]
    """What all sites are asked next; none: there is nothing left to ask."""
    ask: Callable[[Agreed, Message, Site], Message]
    """At a site: statistics of its own rows in double precision; their shapes follow from the message, not the rows."""
    step: Callable[[Tree, Message], Tree]
    """The next state, from the SUM of the answers; where `sums` is false, from the arrays of each site by its name."""
    report: Callable[[Tree], Report]
    """What was found: `Findings(...).report()`."""
    most: int = 25
    """Exchanges at most; a site answers no more."""
    sums: bool = True
    """The sum of the answers is enough, so a secure sum can hide single ones."""
    covers: Callable[[Agreed, Site], Sequence[Array]] | None = None
    """Which of a site's rows answers are about, a flag a row (several such, where columns are looked at one by one);
    none: rows with a value in every column. A site refuses a question about almost the patients of an earlier one."""
    kind: Callable[[Message], ExchangeKind] | None = None
    """How often a site answers what a message asks for, and what stays the same; none: any message, `most` times."""
    alone: bool = True
    """An answer tells of nobody, or of a cell of patients at least, in each of its numbers; else a site that protects
    small groups answers in a secure sum only."""
    model: Callable[[Tree], FoundModel] | None = None
    """The model in the last state, where the method finds one."""
    predict: Callable[[Params, Array], Array] | None = None
    """From its arrays and prepared rows to probabilities (rows, classes) or values (rows,).

    A prepared row has for every number its value (0 where missing) and a mark of whether it is missing, for every
    category a place for each level and the same mark.
    """
    keep: Callable[[Agreed, Message, Site], Mapping[str, bytes]] | None = None
    """At a site, after its answer: files by name that it keeps for itself, such as rules to follow; none leaves."""
    sensitivity: Callable[[Agreed], float] | None = None
    """The length by which one patient can change an answer, in every exchange: for [privacy], whose noise a site adds.

    None: [privacy] is not offered. Under it `step` is also told the deviation of the noise in the sum, as NOISE.
    """
    own_noise: Callable[[], OwnNoise] | None = None
    """Where it noises its answers itself: what all of them together cost a patient, for a site's ledger."""
    texts: tuple[str, ...] = ()
    """Those of its columns that are free text, of whose words no site is asked."""
    question: Callable[[Tree], ExpertQuestion | None] | None = None
    """What an expert is asked before the next exchange, until there is nothing more to ask."""
    told: Callable[[Tree, str], Tree] | None = None
    """The state after the expert's answer to it."""
    together: Callable[[Agreed, Message, Sequence[Site]], Message] | None = None
    """Of sites on one machine the sum of what `ask` gives for each, computed for many at a time; none: one by one."""


ChartKind = Literal["forest", "funnel", "steps", "lines", "points", "bars", "heat"]


class FoundTable(NamedTuple):
    """A table to be read: `rows` hold one value per column; a missing one is None."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]


class FoundChart(NamedTuple):
    """A chart by its data; how a kind is drawn is the report's. `series` has one mapping per line, row or group.

    forest: {name, value, low, high} a row, and where it helps weight, summary = True, heading = True (a row without a
    value), null (where no effect is; the last one counts), log = True (of ratios).
    funnel: {name, value, error} a site, and {name, value, summary = True} for the middle.
    steps, lines, points: {name, x: [...], y: [...]}, and where it helps low: [...], high: [...], text: [...].
    bars: {name, x: [words], y: [numbers]}. heat: {x: [...], y: [...], z: [[...]]}, one row of z for each of y.
    """

    name: str
    caption: str
    kind: ChartKind
    series: Sequence[Mapping[str, Any]]
    x: str = ""
    y: str = ""


class Findings(NamedTuple):
    """`words` are whole sentences, the answer first; `numbers` is what a program reads, exact and by name."""

    words: Sequence[str]
    tables: Sequence[FoundTable] = ()
    charts: Sequence[FoundChart] = ()
    numbers: Mapping[str, Any] = {}

    def report(self) -> Report:
        """As plain values that JSON can hold."""
        return {
            "words": list(self.words),
            "tables": [table._asdict() for table in self.tables],
            "charts": [chart._asdict() for chart in self.charts],
            "numbers": dict(self.numbers),
        }
