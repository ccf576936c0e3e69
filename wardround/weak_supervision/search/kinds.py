"""Where candidates come from, by the kind of record: words of texts, shapes of series, cuts of columns of a table.

Each kind is a few exchanges of sums that end in a pool: arrays that say, the same to all, which rules are candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Site, Tree
from wardround.core.errors import Refusal
from wardround.queries.columns import as_numbers, number_text
from wardround.weak_supervision.function import LabelingFunction
from wardround.weak_supervision.functions.template import template
from wardround.weak_supervision.functions.threshold import threshold
from wardround.weak_supervision.functions.unigram import unigram
from wardround.weak_supervision.search import shapes, words
from wardround.weak_supervision.search.site_cache import SiteCache
from wardround.weak_supervision.series import read_series, sample_columns
from wardround.weak_supervision.tokens import texts_of

Values = np.ndarray[Any, Any]
Arrays = Mapping[str, Values]
CUTS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
"""Where columns of a table are cut: so many standard deviations from the mean."""


BEGINNINGS = 4
"""Beginnings that are asked about at a time, for every word that is wanted."""


class CandidateSearch(NamedTuple):
    """In the order in which it happens; `state` is plain and the coordinator's."""

    columns: tuple[str, ...]
    texts: tuple[str, ...]
    begin: Callable[[], Tree]
    question: Callable[[Tree], Arrays | None]
    """What is asked next; none: the pool is complete."""
    answers: Callable[[Arrays, Sequence[Site]], Arrays]
    """Sums over the records of sites: of a real site its own, on one machine those of all."""
    step: Callable[[Tree, Arrays], Tree]
    pool: Callable[[Tree], Arrays]
    speaks_of: Callable[[Arrays, Site], Values | None]
    """Of which candidates of a pool the site speaks at all, whoever made the pool; none: of all."""
    functions: Callable[[Arrays, str], list[LabelingFunction]]
    """The candidates of a pool, all voting for a label."""
    most: int
    """Exchanges at most."""
    numbers: int
    """Numbers of an answer at most."""


def word_search(
    column: str, low: float, high: float, least: int, fewest: int, most: int, letters: str, denied: Sequence[str]
) -> CandidateSearch:
    """Words of a column of free text."""
    cache = SiteCache()

    def question(state: Tree) -> Arrays | None:
        return {"beginnings": words.to_codes(state["beginnings"])} if state["beginnings"] else None

    def own(site: Site) -> set[str]:
        texts = site.table[column]
        return cache.find(
            site.table, "words", lambda: words.own_words(texts_of(texts), low, high, least, letters, denied)
        )

    def answers(asked: Arrays, sites: Sequence[Site]) -> Arrays:
        places = {one: row for row, one in enumerate(words.from_codes(asked["beginnings"]))}
        found = np.zeros((len(asked["beginnings"]), len(letters) + 1))
        for site in sites:
            for place in words.longer_ones(own(site), places, letters):
                found[place] += 1.0
        return {"sites": found}

    def speaks_of(pool: Arrays, site: Site) -> Values:
        return np.isin(words.from_codes(pool["words"]), list(own(site)))

    def step(state: Tree, told: Arrays) -> Tree:
        longer, found = words.go_on(state["beginnings"], told["sites"], letters, fewest, BEGINNINGS * most)
        return {"beginnings": longer, "found": {**state["found"], **found}}

    return CandidateSearch(
        columns=(column,),
        texts=(column,),
        begin=lambda: {"beginnings": [""], "found": {}},
        question=question,
        answers=answers,
        step=step,
        pool=lambda state: {"words": words.to_codes(sorted(words.most_common(state["found"], most)))},
        speaks_of=speaks_of,
        functions=lambda pool, label: [
            unigram(column=column, word=word, label=label) for word in words.from_codes(pool["words"])
        ],
        most=words.LONGEST + 1,
        numbers=BEGINNINGS * most * (len(letters) + 1),
    )


def shape_search(
    series: str, length: int, least: int, fewest: int, clusters: int, likelihood: float, seed: int
) -> CandidateSearch:
    """Templates of time series, a column for each sample."""
    cache = SiteCache()
    doublings = max(1, int(np.ceil(np.log2(clusters))))

    def question(state: Tree) -> Arrays | None:
        return None if state["left"] == 0 else {"centers": state["centers"]}

    def answers(asked: Arrays, sites: Sequence[Site]) -> Arrays:
        def own(site: Site) -> tuple[Values, Values]:
            return shapes.own_templates(read_series(site.table, series, length, f"site {site.name}"), least, seed)

        centers = np.asarray(asked["centers"])
        parts = [
            shapes.sums_by_shape(*cache.find(site.table, "templates", partial(own, site)), centers) for site in sites
        ]
        return {key: np.sum([part[key] for part in parts], axis=0) for key in parts[0]}

    def step(state: Tree, told: Arrays) -> Tree:
        centers, left = shapes.moved(state["centers"], told["sums"], told["templates"]), state["left"] - 1
        if left and left % 2 == 0:
            return {"centers": shapes.split(centers, seed), "left": left}
        return {"centers": centers, "left": left, "last": {key: np.asarray(told[key]) for key in ("sites", "radii")}}

    def pool(state: Tree) -> Arrays:
        enough = state["last"]["sites"] >= fewest - 0.5
        radii = shapes.largest_radii(state["last"]["radii"], length)
        return {"templates": state["centers"][enough], "radii": radii[enough]}

    return CandidateSearch(
        columns=sample_columns(series, length),
        texts=(),
        begin=lambda: {"centers": np.zeros((1, length)), "left": 2 * doublings + 1},
        question=question,
        answers=answers,
        step=step,
        pool=pool,
        speaks_of=lambda found, site: None,
        functions=lambda found, label: [
            template(
                series=series,
                samples=tuple(map(float, one)),
                distance=float(radius),
                label=label,
                likelihood=likelihood,
            )
            for one, radius in zip(found["templates"], found["radii"], strict=True)
        ],
        most=2 * doublings + 1,
        numbers=2**doublings * (length + 2 + shapes.GRID),
    )


def cut_search(columns: tuple[str, ...]) -> CandidateSearch:
    """Thresholds of the columns of a table, above and below cuts around the mean of all sites."""

    def answers(asked: Arrays, sites: Sequence[Site]) -> Arrays:
        found = np.zeros((len(columns), 3))
        for site in sites:
            for place, name in enumerate(columns):
                known = as_numbers(site.table[name])
                known = known[np.isfinite(known)]
                found[place] += len(known), known.sum(), np.square(known).sum()
        return {"moments": found}

    def pool(state: Tree) -> Arrays:
        rules = []
        for place, (count, total, squares) in enumerate(state["moments"]):
            if count < 2:
                continue
            mean = total / count
            width = np.sqrt(max(squares / count - mean**2, 0.0))
            cuts = sorted({float(f"{mean + width * z:.3g}") for z in CUTS})
            rules += [(place, side, cut) for cut in cuts for side in (0, 1)]
        return {"cuts": np.array(rules, np.float64).reshape(-1, 3)}

    def functions(found: Arrays, label: str) -> list[LabelingFunction]:
        signs = ("<=", ">")
        return [
            threshold(condition=f'"{columns[int(place)]}" {signs[int(side)]} {number_text(float(cut))}', label=label)
            for place, side, cut in found["cuts"]
        ]

    return CandidateSearch(
        columns=columns,
        texts=(),
        begin=dict,
        question=lambda state: None if "moments" in state else {"moments": np.zeros(())},
        answers=answers,
        step=lambda state, told: {"moments": np.asarray(told["moments"])},
        pool=pool,
        speaks_of=lambda found, site: None,
        functions=functions,
        most=1,
        numbers=3 * len(columns),
    )


def refuse_empty(pool: Arrays, fewest: int) -> None:
    """Where no candidate is common to enough sites there is nothing to show."""
    if not any(len(one) for one in pool.values()):
        raise Refusal(
            f"no candidate rule is common to {fewest} sites",
            where="[analysis]",
            remedy="lower fewest_sites, widen the range of document frequencies, or have more sites take part",
        )


def refuse_words(letters: str, cell: int, fewest: int) -> None:
    """Settings under which a site that protects small groups would speak of what is one patient's, or its own alone."""
    if any(one.isdigit() for one in letters):
        raise Refusal(
            "words with digits may be numbers of patients, so none is spoken of",
            where="[analysis] letters",
            remedy="leave digits out",
        )
    if cell > 1 and fewest < 2:
        raise Refusal(
            "what one site alone has would be shown to everybody",
            where="[analysis] fewest_sites",
            remedy="say fewest_sites = 3, or 2 at least",
        )


def refuse_impossible(told: Arrays, sites: int) -> None:
    """Each site counts once: more proposals than sites, or fewer than none, come from an answer that is not true."""
    counts = np.asarray(told["sites"]) if "sites" in told else np.zeros(1)
    if counts.size and (counts.max() > sites + 0.5 or counts.min() < -0.5):
        raise Refusal(
            f"by the sum of the answers {round(float(counts.max() if counts.max() > sites else counts.min()))} sites"
            f" propose a rule, and {sites} take part: the answer of one of them is not true",
            where="[analysis]",
            remedy="run the study with fewer sites to find out which; nothing was shown to anybody",
        )
