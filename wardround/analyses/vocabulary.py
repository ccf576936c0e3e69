"""Words that several sites have, and in how many documents each is: TF-IDF fitted without a text leaving its site.

Words are found letter by letter, as in `rule_mining`; then one exchange of document frequencies, in whole cells and
noised on request. A word's weight is its inverse document frequency, ln((1 + documents) / (1 + documents with it)) + 1
(Spärck Jones 1972, smoothed as in scikit-learn). The report gives the words and weights as a study names them in
[data.cleaning] texts. Needs sums alone, so a secure sum hides every site's part; about twenty exchanges.
"""

from typing import Any

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable, kind_by_word
from wardround.core.bounds import Count, NotNegative
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.queries.cells import in_cells
from wardround.weak_supervision.search.kinds import (
    BEGINNINGS,
    refuse_empty,
    refuse_impossible,
    refuse_words,
    word_search,
)
from wardround.weak_supervision.search.words import LETTERS, from_codes
from wardround.weak_supervision.tokens import has_words, texts_of

LABEL = "Vocabulary"
PHASE, SEARCH, COUNT = "phase", "search", "count"
POOL = "pool/words"


def told_in_words(settings: Settings) -> str:
    noise = f", with noise of a standard deviation of {settings['noise']:g} on every count" if settings["noise"] else ""
    return (
        "whether your texts have frequent words that begin so (no word is sent; words with digits, denied words and"
        " likely names are left out); then, of each word that enough sites have, in how many of your documents it is,"
        f" in cells of {settings['smallest_cell']}{noise}"
    )


def numbers(of: Extent) -> int:
    return int(BEGINNINGS * of.settings.get("most", 1000) * (len(of.settings.get("letters", LETTERS)) + 1))


TERMS = Terms(told_in_words, numbers, rows="table")


@recorded("analysis", TERMS)
def vocabulary(
    *,
    column: str,
    most: Count = 1000,
    frequency: tuple[float, ...] = (0.01, 0.5),
    fewest_sites: Count = 3,
    letters: str = LETTERS,
    denied: tuple[str, ...] = (),
    noise: NotNegative = 0.0,
    smallest_cell: Count = 1,
    noise_seed: int | None = None,
) -> Analysis:
    """Words that enough sites have with their document frequencies, as weights for TF-IDF."""
    if len(frequency) != 2 or not 0 <= frequency[0] < frequency[1] <= 1:
        raise Refusal("frequency should be two shares in order", where="[analysis]", remedy="say [0.01, 0.5]")
    refuse_words(letters, smallest_cell, fewest_sites)
    low, high = frequency
    search = word_search(column, low, high, smallest_cell, fewest_sites, most, letters, denied)

    def begin(agreed: Agreed) -> Tree:
        if len(agreed.sites) < fewest_sites:
            raise Refusal(
                f"a word is told where {fewest_sites} sites have it, and {len(agreed.sites)} take part",
                where="[analysis] fewest_sites",
                remedy="invite more sites, or lower fewest_sites",
            )
        return {"search": search.begin(), "taking_part": len(agreed.sites)}

    def message(state: Tree) -> Message | None:
        if "documents" in state:
            return None
        if "words" in state:
            return Message({POOL: state["words"]}, ((PHASE, COUNT),))
        asked = search.question(state["search"])
        assert asked is not None, "a complete search has its words"
        return Message(dict(asked), ((PHASE, SEARCH),))

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        if dict(asked.meta).get(PHASE) == SEARCH:
            return Message(dict(search.answers(asked.arrays, [site])))
        pool = {"words": np.asarray(asked.arrays[POOL])}
        found = has_words(texts_of(site.table[column]), from_codes(pool["words"])).sum(axis=0)
        spoken = search.speaks_of(pool, site)
        counts: dict[str, Any] = {"documents": found if spoken is None else found * spoken, "rows": len(site.table)}
        told = {name: np.asarray(in_cells(np.asarray(part), smallest_cell), float) for name, part in counts.items()}
        if noise and len(site.table):
            told["documents"] = with_gaussian_noise(
                told["documents"], noise, noise_key(noise_seed, "documents", site.name)
            )
        return Message(told)

    def step(state: Tree, told: Message) -> Tree:
        if "words" in state:
            return {**state, **{key: np.asarray(value, float) for key, value in told.arrays.items()}}
        refuse_impossible(told.arrays, state["taking_part"])
        searched = search.step(state["search"], told.arrays)
        if search.question(searched) is not None:
            return {**state, "search": searched}
        pool = search.pool(searched)
        refuse_empty(pool, fewest_sites)
        return {**state, "search": searched, "words": pool["words"]}

    return Analysis(
        columns=(column,),
        begin=begin,
        message=message,
        ask=ask,
        step=step,
        report=lambda state: told_of(column, from_codes(state["words"]), state["documents"], float(state["rows"])),
        most=search.most + 1,
        covers=lambda agreed, site: [np.ones(len(site.table), bool)],
        kind=kind_by_word(PHASE, {SEARCH: search.most, COUNT: 1}, fixed=(POOL,)),
        alone=False,
        texts=(column,),
    )


def told_of(column: str, words: list[str], documents: Any, rows: float) -> Report:
    """Where the others' documents were kept back, a word has fewer than it has: its weight is then too large."""
    counts = np.clip(documents, 0.0, rows)
    weights = np.log((1 + rows) / (1 + counts)) + 1
    lines: list[list[str | float | int | None]] = [
        [word, round(float(count)), round(float(weight), 4)]
        for word, count, weight in sorted(zip(words, counts, weights, strict=True), key=lambda one: -one[1])
    ]
    said = [
        f"{counted(len(words), 'word')} in {rows:,.0f} documents.",
        "For a study: [data.cleaning] texts, with the words and weights that the result holds.",
    ]
    texts = {column: {"words": list(words), "weights": [round(float(one), 6) for one in weights]}}
    table = FoundTable(
        "words", "Words, in how many documents each is, its weight", ("word", "documents", "weight"), lines
    )
    return Findings(said, [table], [], {"texts": texts, "documents": counts.tolist(), "rows": rows}).report()
