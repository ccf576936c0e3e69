"""Rule mining: sites propose labeling functions, an expert judges them one at a time, and records stay unlabelled.

Caldas, "Collaborative learning by leveraging siloed data", 2022, chapter 5 (WSHFL, algorithm 1). First the sites agree
on a pool of candidates from sums: words found letter by letter, shapes of series by k-means over sites, cuts of
columns. Then, exchange by exchange, every site judges with a small network of its own which candidates the expert would
accept, given the answers so far; the sums over sites give the rule with the largest lower bound, which the expert is
shown. Needs sums alone, so a secure sum hides every site's part; a rule that fewer than `fewest_sites` sites propose is
shown to nobody. Costs one exchange for each question, and about twenty before the first.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed, Analysis, kind_by_word
from wardround.core.bounds import Count, CountOrAll, NotNegative, Positive, Share
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Site, Tree
from wardround.core.errors import Refusal
from wardround.privacy.noised_sums import with_lasting_noise
from wardround.queries.cells import in_cells
from wardround.queries.columns import as_text
from wardround.weak_supervision.function import LabelingFunction, votes_of
from wardround.weak_supervision.rule_text import function_from_text
from wardround.weak_supervision.search.dialogue import MOST_ANSWERS, DialoguePlan, after_answer, question_of, with_sums
from wardround.weak_supervision.search.findings import report_of
from wardround.weak_supervision.search.kinds import (
    BEGINNINGS,
    CandidateSearch,
    cut_search,
    refuse_empty,
    refuse_impossible,
    refuse_words,
    shape_search,
    word_search,
)
from wardround.weak_supervision.search.selection import Strategy
from wardround.weak_supervision.search.site_cache import SiteCache
from wardround.weak_supervision.search.usefulness import SiteVotes, usefulness
from wardround.weak_supervision.search.vote_groups import as_groups
from wardround.weak_supervision.search.words import LETTERS

LABEL = "Rule mining"
PHASE, SEARCH, JUDGE = "phase", "search", "judge"
POOLS = ("pool/words", "pool/templates", "pool/radii", "pool/cuts")
"""What says which rules are candidates: the same in all messages."""
ALMOST_ALL = 0.95
"""A site proposes no rule that fires on more of its records: it tells nothing apart."""
STEP = 1 / 16
"""A site that protects small groups tells in such steps how useful a rule seems: exactly, it would tell who has it."""


def told_in_words(settings: Settings) -> str:
    noise = f", with noise of a standard deviation of {settings['noise']:g} on every count" if settings["noise"] else ""
    of = {
        "words": "whether your texts have frequent words that begin so (no word is sent; words with digits, denied"
        " words and likely names are left out)",
        "series": "sums of the mean shapes of groups of your series",
        "table": "sums of your columns and of their squares",
    }[settings["kind"]]
    return (
        f"first {of}; then, for every candidate rule and each answer of the expert, whether you propose it, how useful"
        " it seems by your records, and on how many of your records it fires, alone and with accepted rules, in"
        f" cells of {settings['smallest_cell']}{noise}; a rule that fewer than {settings['fewest_sites']} sites propose"
        " is shown to nobody, but a coordinator that deviates can learn in the sum of all sites that some site has it"
    )


def numbers(of: Extent) -> int:
    classes, most = len(of.settings.get("labels", (0, 0))), of.settings.get("most", 2000)
    searched = max(BEGINNINGS * most * (len(of.settings.get("letters", LETTERS)) + 1), 3 * of.columns)
    if of.settings.get("kind", "words") == "series":
        searched = max(searched, 2 * of.settings.get("clusters", 64) * (of.settings.get("length", 0) + 40))
    return int(max(searched, (14 * of.columns + most + 2 * of.settings.get("clusters", 64)) * (3 * classes + 2) + 1))


TERMS = Terms(told_in_words, numbers, rows="table")


@recorded("analysis", TERMS)
def rule_mining(
    *,
    labels: tuple[str, ...],
    kind: Literal["words", "series", "table"] = "words",
    column: str = "",
    series: str = "",
    length: int = 0,
    columns: tuple[str, ...] = (),
    seeds: tuple[str, ...] = (),
    questions: Count = 100,
    strategy: Strategy = "bound",
    in_turn: bool = True,
    delta: Positive = 0.05,
    fewest_sites: Count = 3,
    participants: CountOrAll = 0,
    frequency: tuple[float, ...] = (0.01, 0.5),
    most: Count = 2000,
    letters: str = LETTERS,
    denied: tuple[str, ...] = (),
    clusters: Count = 64,
    likelihood: Share = 0.2,
    expert: Literal["person", "oracle"] = "person",
    outcome: str = "",
    threshold: Share = 0.7,
    noise: NotNegative = 0.0,
    smallest_cell: Count = 1,
    noise_seed: int | None = None,
    seed: int = 0,
) -> Analysis:
    """Labeling functions that several sites propose and an expert accepts (participants: so many a question)."""
    refuse_settings(labels, kind, column, series, length, columns, frequency, expert, outcome)
    refuse_exposure(letters, participants, smallest_cell, fewest_sites)
    low, high = frequency
    search = {
        "words": lambda: word_search(column, low, high, smallest_cell, fewest_sites, most, letters, denied),
        "series": lambda: shape_search(series, length, smallest_cell, fewest_sites, clusters, likelihood, seed),
        "table": lambda: cut_search(tuple(columns)),
    }[kind]()
    read = column if kind == "words" else ""
    known = tuple(function_from_text(one, labels, read, "[analysis] seeds") for one in seeds)
    oracle = threshold if expert == "oracle" else None
    plan = DialoguePlan(tuple(labels), questions, strategy, delta, fewest_sites, oracle, seed, in_turn)
    site_half = SiteHalf(search, known, plan, low, high, outcome, noise, smallest_cell, noise_seed, participants)

    def begin(agreed: Agreed) -> Tree:
        if len(agreed.sites) < fewest_sites:
            raise Refusal(
                f"a rule is shown where {fewest_sites} sites propose it, and {len(agreed.sites)} take part",
                where="[analysis] fewest_sites",
                remedy="invite more sites, or lower fewest_sites",
            )
        began = {"answers": [], "seen": {}, "given": 0, "shown": None, "finished": False, "sums": None}
        return {"search": search.begin(), "taking_part": len(agreed.sites), **began}

    def message(state: Tree) -> Message | None:
        if "pool" not in state:
            asked = search.question(state["search"])
            assert asked is not None, "a complete search has a pool"
            return Message(dict(asked), ((PHASE, SEARCH),))
        if state["finished"]:
            return None
        judged = [(place, 1.0 if answer == "yes" else 0.0) for place, answer in state["answers"] if answer != "unsure"]
        filled = np.full((questions, 2), -1.0)
        filled[: len(judged)] = np.array(judged).reshape(-1, 2)
        number = np.array(float(len(state["answers"])))
        pool = {f"pool/{key}": value for key, value in state["pool"].items()}
        return Message({**pool, "judged": filled, "number": number}, ((PHASE, JUDGE),))

    def step(state: Tree, told: Message) -> Tree:
        refuse_impossible(told.arrays, state["taking_part"])
        if "pool" in state:
            return with_sums(plan, state, told.arrays)
        searched = search.step(state["search"], told.arrays)
        if search.question(searched) is not None:
            return {**state, "search": searched}
        pool = search.pool(searched)
        refuse_empty(pool, fewest_sites)
        rules = {one: search.functions(pool, one) for one in labels}
        seeded = [item for item, one in enumerate(rules[labels[0]]) if one.words in {rule.words for rule in known}]
        return {**state, "search": searched, "pool": pool, "rules": rules, "seeded": seeded}

    exchanges = MOST_ANSWERS * questions + 1
    wanted = tuple(dict.fromkeys((*search.columns, *([outcome] if outcome else []))))
    return Analysis(
        columns=wanted,
        begin=begin,
        message=message,
        ask=site_half.ask,
        step=step,
        report=lambda state: report_of(plan, state, known),
        most=search.most + exchanges,
        covers=lambda agreed, site: [np.ones(len(site.table), bool)],
        kind=kind_by_word(PHASE, {SEARCH: search.most, JUDGE: exchanges}, fixed=POOLS),
        alone=False,
        texts=search.texts,
        question=lambda state: question_of(plan, state),
        told=lambda state, answer: after_answer(plan, state, answer),
        together=site_half.together,
    )


class OwnVotes(NamedTuple):
    """Votes of the candidates that fire at a site at all, and of the rules that are known from the start."""

    places: Any
    """Which candidates of the pool these are."""
    fired: Any
    """(records, candidates)"""
    seeded: Any
    """(records, known rules)"""
    proposed: Any
    """Of these candidates, those that the site proposes."""
    known: Any
    """(candidates, classes): on how many labelled records of each class a candidate that is proposed fires."""


class SiteHalf:
    """What a site does: answers of the search, then how useful every candidate seems to it."""

    def __init__(self, search: CandidateSearch, known: tuple[LabelingFunction, ...], plan: DialoguePlan, *rest: Any):
        self.search, self.known, self.plan = search, known, plan
        self.low, self.high, self.outcome, self.noise, self.cell, self.noise_seed, self.participants = rest
        self.cache = SiteCache()
        self.rules: tuple[int | None, list[LabelingFunction]] = (None, [])
        """Those of the last pool: all sites of a simulation are asked about the same."""

    def is_drawn(self, agreed: Agreed, asked: Message, site: Site) -> bool:
        """Whether the site judges candidates this time; of those that do not, all sums are 0."""
        number = int(np.asarray(asked.arrays["number"]))
        draw = zlib.crc32(f"{self.plan.seed} {number} {site.name}".encode()) / 2**32
        return not self.participants or draw * len(agreed.sites) < self.participants

    def ask(self, agreed: Agreed, asked: Message, site: Site) -> Message:
        return self.together(agreed, asked, [site])

    def together(self, agreed: Agreed, asked: Message, sites: Sequence[Site]) -> Message:
        """The sum of the sites' answers: their networks are trained side by side."""
        if dict(asked.meta).get(PHASE) == SEARCH:
            return Message(dict(self.search.answers(asked.arrays, sites)))
        pool = {key.removeprefix("pool/"): np.asarray(value) for key, value in asked.arrays.items() if "/" in key}
        digest = hash(tuple((key, value.tobytes()) for key, value in sorted(pool.items())))
        if self.rules[0] != digest:
            self.rules = digest, self.search.functions(pool, self.plan.labels[0])
        drawn = [site for site in sites if len(site.table) and self.is_drawn(agreed, asked, site)]
        # An oracle knows all labels, whoever is drawn to judge candidates.
        labelled = [site for site in sites if len(site.table)] if self.outcome else []
        own = {
            site.name: self.cache.find(site.table, digest, partial(self.votes, pool, site))
            for site in (labelled or drawn)
        }
        found = self.answers(asked, drawn, [own[site.name] for site in drawn], len(self.rules[1]))
        for site in labelled:
            self.add(found, "known", own[site.name], own[site.name].known, site, asked)
        return Message(found)

    def votes(self, pool: Mapping[str, Any], site: Site) -> OwnVotes:
        spoken, fired = self.search.speaks_of(pool, site), votes_of(self.rules[1], site.table)
        known = votes_of(self.known, site.table)
        both = np.concatenate([known, fired if spoken is None else fired & spoken], axis=1)
        found = as_groups(both, self.cell)
        seeded, fired, rows = found[:, : known.shape[1]], found[:, known.shape[1] :], len(found)
        counts = fired.sum(axis=0)
        least = max(self.cell, self.low * rows if self.search.texts else 1)
        most = (self.high if self.search.texts else ALMOST_ALL) * rows
        places = np.flatnonzero(counts)
        proposed = ((counts >= least) & (counts <= most))[places]
        truth = np.zeros((rows, len(self.plan.labels)))
        if self.outcome:
            truth[:] = as_text(site.table[self.outcome])[:, None] == np.array(self.plan.labels, object)
        known = fired[:, places[proposed]].T.astype(float) @ truth
        return OwnVotes(places, fired[:, places], seeded, proposed, known)

    def answers(self, asked: Message, sites: Sequence[Site], own: Sequence[OwnVotes], many: int) -> dict[str, Any]:
        classes = len(self.plan.labels)
        judged = np.asarray(asked.arrays["judged"])[: self.plan.questions]
        judged = judged[(judged[:, 0] >= 0) & (judged[:, 0] < many * classes)].astype(int)
        labels = np.concatenate([[self.plan.labels.index(one.label) for one in self.known], judged[:, 0] % classes])
        answers = np.concatenate([np.ones(len(self.known)), judged[:, 1]])
        # A rule that is mostly right for one label is mostly wrong for the others: what is accepted teaches both.
        twins = [(place, label) for place in np.flatnonzero(answers > 0) for label in range(classes)]
        beside = np.array([one for one in twins if one[1] != labels[one[0]]], int).reshape(-1, 2)
        found: dict[str, Any] = {
            "useful": np.zeros((many, classes)),
            "sites": np.zeros(many),
            "covered": np.zeros(many),
            "agree": np.zeros((many, classes)),
            "rows": np.zeros(()),
            "known": np.zeros((many, classes)),
        }
        cast = [judged_votes(one, judged[:, 0] // classes) for one in own]
        seen = [
            SiteVotes(
                np.concatenate([votes, votes[:, beside[:, 0]]], axis=1),
                one.fired[:, one.proposed],
                zlib.crc32(f"{self.plan.seed} {site.name}".encode()),
            )
            for site, one, votes in zip(sites, own, cast, strict=True)
        ]
        said = np.concatenate([answers, np.zeros(len(beside))])
        if self.plan.strategy == "random":  # looks at no estimate
            useful = [np.zeros((one.candidates.shape[1], classes)) for one in seen]
        else:
            useful = usefulness(seen, np.concatenate([labels, beside[:, 1]]), said, classes)
        for site, one, votes, chances in zip(sites, own, cast, useful, strict=True):
            places, rows, fired = one.places[one.proposed], len(one.fired), one.fired[:, one.proposed]
            found["useful"][places] += chances if self.cell <= 1 else np.rint(chances / STEP) * STEP
            found["sites"][places] += 1.0
            found["rows"] += float(in_cells(rows, self.cell))
            self.add(found, "covered", one, fired.sum(axis=0), site, asked)
            self.add(found, "agree", one, fired.T.astype(float) @ self.alone(votes, labels, answers), site, asked)
        return found

    def add(self, found: dict[str, Any], name: str, own: OwnVotes, counts: Any, site: Site, asked: Message) -> None:
        """Counts of the candidates that a site proposes, in whole cells, and noised where the study asks for it.

        Most of them are the same in every exchange, so their noise is, too: a mean over the dialogue tells no more.
        """
        whole = np.zeros(found[name].shape)
        whole[own.places[own.proposed]] = in_cells(np.asarray(counts, np.float64), self.cell)
        if self.noise:
            pool = hashlib.sha256(
                b"".join(np.asarray(asked.arrays[one]).tobytes() for one in POOLS if one in asked.arrays)
            )
            whole = with_lasting_noise(whole, self.noise, self.noise_seed, name, site.name, pool.hexdigest())
        found[name] += whole

    def alone(self, votes: Any, labels: Any, answers: Any) -> Any:
        """(records, classes): 1 where accepted rules vote mostly for that class."""
        accepted = [votes[:, (labels == one) & (answers > 0)] for one in range(len(self.plan.labels))]
        cast = np.stack([one.sum(axis=1) for one in accepted], axis=1)
        most = cast.max(axis=1, keepdims=True)
        leads = (cast == most) & (most > 0)
        return (leads & (leads.sum(axis=1, keepdims=True) == 1)).astype(float)


def judged_votes(own: OwnVotes, judged: Any) -> Any:
    """(records, known and judged rules): who fires; a rule that nowhere fires has no column of its own."""
    place = np.searchsorted(own.places, judged)
    near = np.minimum(place, max(0, len(own.places) - 1))
    has = (own.places[near] == judged) if len(own.places) else np.zeros(len(judged), bool)
    fired = np.zeros((len(own.fired), len(judged)), bool)
    fired[:, has] = own.fired[:, near[has]]
    return np.concatenate([own.seeded, fired], axis=1)


def refuse_exposure(letters: str, participants: int, cell: int, fewest: int) -> None:
    """Settings under which a site would tell more than whoever approves reads."""
    refuse_words(letters, cell, fewest)
    if participants and cell > 1:
        # Whom a question is drawn to follows from the question: two sums that differ by one site are that site.
        raise Refusal(
            f"of sums over {participants} sites that are drawn anew for each question single answers can be worked out",
            where="[analysis] participants",
            remedy='leave it out, or say "all"; it is for simulations without a smallest cell',
        )


def refuse_settings(
    labels: tuple[str, ...],
    kind: str,
    column: str,
    series: str,
    length: int,
    columns: tuple[str, ...],
    frequency: tuple[float, ...],
    expert: str,
    outcome: str,
) -> None:
    where = "[analysis]"
    if len(set(labels)) < 2 or len(set(labels)) != len(labels):
        raise Refusal("rules need two different labels or more to vote for", where=where, remedy="name them in labels")
    needed = {"words": ("column", column), "series": ("series", series and length > 1), "table": ("columns", columns)}
    if not needed[kind][1]:
        raise Refusal(
            f"candidates of the kind {kind!r} need {needed[kind][0]}",
            where=where,
            remedy='say column = "note"; or series = "beat_" and length = 144; or columns = ["lactate", "age"]',
        )
    if any('"' in one for one in columns):
        raise Refusal("a rule cannot name a column with a quotation mark", where=where, remedy="rename it in the table")
    if len(frequency) != 2 or not 0 <= frequency[0] < frequency[1] <= 1:
        raise Refusal("frequency should be two shares in order", where=where, remedy="say frequency = [0.01, 0.5]")
    if expert == "oracle" and not outcome:
        raise Refusal(
            "an oracle judges rules by known labels, and no outcome is named",
            where=where,
            remedy='name the column of labels in outcome, or say expert = "person"',
        )
