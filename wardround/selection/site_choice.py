"""A site's whole choice, made at home: neighbours, competence, threshold, rules, and what they did to test patients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.selection.competence import competence, cross_entropy, loss_nearby, own_difference, pick_other
from wardround.selection.decision_list import ListCut, ListedRule, cut_list, decision_list
from wardround.selection.evaluation import Handled, holm, judge
from wardround.selection.flips import signs_of
from wardround.selection.k_choice import KChoice, choose_k, choose_k_by_folds
from wardround.selection.neighbours import nearest
from wardround.selection.operating_points import Keeps, PointOfUse, risk_threshold
from wardround.selection.permutation_test import Pruned, prune
from wardround.selection.rule_columns import RuleColumns, rule_columns
from wardround.selection.rules import first_rule
from wardround.selection.settings import SelectionSettings
from wardround.selection.threshold import ThresholdChoice, choose_competence_threshold

Values = np.ndarray[Any, Any]


class PatientPart(NamedTuple):
    """Validation or test rows of a site: as recorded, as prepared, and scored by all classifiers."""

    frame: pd.DataFrame
    x: Values
    outcome: Values
    patients: Values
    scores: Values
    """(own and others, rows)."""


class Strategy(NamedTuple):
    """One way to choose at one operating point: what validation said, and what it did to the test patients."""

    name: str
    p_value: float
    corrected: float
    looks: int
    passes: bool
    validation: Handled
    test: Handled
    """As if it had passed; nobody is handed over where it did not."""
    threshold: float | None = None
    rules: int = 0


class PointChoice(NamedTuple):
    """An operating point with one way to give the others' classifiers a threshold, and the strategies there."""

    point: PointOfUse
    keeps: Keeps
    thresholds: tuple[float, ...]
    strategies: Mapping[str, Strategy]
    explained: tuple[float | None, float | None]
    """Of those whom the threshold hands over, the share that the rules take too: in validation and in test."""


class SiteChoice(NamedTuple):
    """All that a site found out; it stays at the site but for counts."""

    k: KChoice
    listed: tuple[ListedRule, ...]
    pruned: Pruned
    cells: tuple[PointChoice, ...]
    competence: tuple[Values, Values]
    """Of the others at validation and test patients, (others, rows)."""

    def cell(self, point: str, keeps: str) -> PointChoice:
        return next(one for one in self.cells if (one.point.name, one.keeps) == (point, keeps))


class _Known(NamedTuple):
    """What all operating points share."""

    picked: tuple[Values, Values]
    picked_competence: tuple[Values, Values]
    listed: tuple[ListedRule, ...]
    places: tuple[Values, Values]
    """The first rule of the list that takes each row."""


def choose_at_site(
    validation: PatientPart,
    test: PatientPart,
    sources: Sequence[str],
    own_thresholds: Sequence[Mapping[str, float]],
    settings: SelectionSettings,
    *,
    seed: int,
    where: str = "",
) -> SiteChoice:
    """`own_thresholds` are those that came with each source's classifier, by the operating point's name."""
    if not sources:
        raise Refusal("no other site sent a classifier", where=where, remedy="wait for the others, and ask again")
    rng = np.random.default_rng((seed, 0x5E1))
    losses = np.stack([cross_entropy(one, validation.outcome) for one in validation.scores])
    chosen = _choose_k(validation, losses, settings, rng, where)
    itself = (validation.patients, validation.patients) if settings.own_rows == "left_out" else None
    near = nearest(validation.x, validation.x, chosen.k, patients=itself, where=where)
    there = nearest(validation.x, test.x, chosen.k, where=where)
    found = tuple(competence(loss_nearby(losses, one), settings.epsilon) for one in (near, there))
    columns = rule_columns(validation.frame, least=settings.least, gaps=settings.gaps)

    def listed_in(way: SelectionSettings) -> tuple[tuple[ListedRule, ...], Pruned]:
        def values_of(of: Values) -> Values:
            if way.rules_from == "patients":
                return own_difference(of)
            return competence(loss_nearby(of, near), way.epsilon)

        listed = decision_list(
            columns,
            values_of(losses),
            sources,
            least=way.least,
            features=way.features,
            most=way.most_rules,
            by=way.rules_by,
        )
        if way.prune and _may_pass(validation, listed, own_thresholds, way, where):
            return listed, _prune(listed, columns, losses, values_of, validation.patients, way, rng)
        return listed, Pruned(len(listed), ())

    ways = [listed_in(way) for way in _ways(settings)]
    listed, pruned = min(ways, key=lambda way: _first_p(validation, way, own_thresholds, settings, where))
    known = _known(validation, test, (found[0], found[1]), listed, settings)
    cells = tuple(
        _cell(validation, test, known, pruned, own_thresholds, settings, point, keeps, rng, where, len(ways))
        for point in settings.points
        for keeps in _both_ways(point, own_thresholds)
    )
    return SiteChoice(chosen, listed, pruned, cells, (found[0], found[1]))


def _ways(settings: SelectionSettings) -> tuple[SelectionSettings, ...]:
    """Rules as the settings say; and, where both ways are looked at, the thesis' way beside it.

    Rules of competence among neighbours are not pruned there: no patient's own outcome is in its competence, so the
    test on changed decisions is a test of the rules as well; shuffled losses would judge losses and not decisions.
    """
    printed = replace(settings, rules_from="neighbours", rules_by="bound", prune=False)
    if not settings.both_ways or (settings.rules_from, settings.rules_by) == ("neighbours", "bound"):
        return (settings,)
    return (settings, printed)


def _first_p(
    validation: PatientPart,
    way: tuple[tuple[ListedRule, ...], Pruned],
    own: Sequence[Mapping[str, float]],
    settings: SelectionSettings,
    where: str,
) -> float:
    """The corrected p-value of these rules at the first operating point."""
    point = settings.points[0]
    keeps = settings.keeps if settings.keeps in _both_ways(point, own) else "local"
    signs = _Labels(validation, np.array(_thresholds(validation, own, point, keeps, where))[:, None]).signs
    cut = cut_list(way[0][: way[1].kept], signs, validation.patients, np.random.default_rng(0))
    return cut.corrected + 1e-9 * cut.p_value


def _choose_k(
    part: PatientPart, losses: Values, settings: SelectionSettings, rng: np.random.Generator, where: str
) -> KChoice:
    if settings.k is not None:
        return KChoice(settings.k)
    if settings.k_by == "folds":
        return choose_k_by_folds(part.x, losses, part.patients, grid=settings.k_grid, where=where)
    return choose_k(part.x, losses, part.patients, rng, grid=settings.k_grid, where=where)


def _may_pass(
    validation: PatientPart,
    listed: tuple[ListedRule, ...],
    own: Sequence[Mapping[str, float]],
    settings: SelectionSettings,
    where: str,
) -> bool:
    """Whether the best p-value of the rules passes anywhere; if not, shuffling patients can change nothing."""
    rng = np.random.default_rng(0)
    for point in settings.points:
        for keeps in _both_ways(point, own):
            thresholds = _thresholds(validation, own, point, keeps, where)
            signs = _Labels(validation, np.array(thresholds)[:, None]).signs
            if cut_list(listed, signs, validation.patients, rng, draws=1).p_value <= settings.level:
                return True
    return False


def _thresholds(
    validation: PatientPart, own: Sequence[Mapping[str, float]], point: PointOfUse, keeps: Keeps, where: str
) -> list[float]:
    local = [risk_threshold(point, one, validation.outcome, where=where) for one in validation.scores]
    return local if keeps == "local" else [local[0], *(one[point.name] for one in own)]


def _prune(
    listed: tuple[ListedRule, ...],
    columns: RuleColumns,
    losses: Values,
    values_of: Callable[[Values], Values],
    patients: Values,
    settings: SelectionSettings,
    rng: np.random.Generator,
) -> Pruned:
    return prune(
        listed,
        columns,
        losses,
        values_of,
        patients,
        rng,
        level=settings.level,
        shuffles=settings.shuffles,
        least=settings.least,
        features=settings.features,
        by=settings.rules_by,
    )


def _known(
    validation: PatientPart,
    test: PatientPart,
    found: tuple[Values, Values],
    listed: tuple[ListedRule, ...],
    settings: SelectionSettings,
) -> _Known:
    picked = [
        pick_other(one, part.scores[1:], settings.pick) for one, part in zip(found, (validation, test), strict=True)
    ]
    rules = tuple(one.rule for one in listed)
    return _Known(
        (picked[0], picked[1]),
        (found[0][picked[0], np.arange(len(picked[0]))], found[1][picked[1], np.arange(len(picked[1]))]),
        listed,
        (first_rule(rules, validation.frame), first_rule(rules, test.frame)),
    )


def _both_ways(point: PointOfUse, own: Sequence[Mapping[str, float]]) -> tuple[Keeps, ...]:
    """Sites that sent no threshold of their own for this point can only be given a local one."""
    return ("local", "own") if all(point.name in one for one in own) else ("local",)


def _cell(
    validation: PatientPart,
    test: PatientPart,
    known: _Known,
    pruned: Pruned,
    own: Sequence[Mapping[str, float]],
    settings: SelectionSettings,
    point: PointOfUse,
    keeps: Keeps,
    rng: np.random.Generator,
    where: str,
    ways: int,
) -> PointChoice:
    thresholds = _thresholds(validation, own, point, keeps, where)
    parts = [_Labels(part, np.array(thresholds)[:, None]) for part in (validation, test)]
    rows = np.arange(len(validation.outcome))
    best = choose_competence_threshold(
        known.picked_competence[0], parts[0].signs[known.picked[0], rows], validation.patients, rng
    )
    cut = cut_list(known.listed[: pruned.kept], parts[0].signs, validation.patients, rng)
    # The better of two lists was taken: that is two looks.
    cut = cut._replace(corrected=min(1.0, ways * cut.corrected))
    by_threshold = [
        np.where(one > best.value, who, -1) for one, who in zip(known.picked_competence, known.picked, strict=True)
    ]
    by_rules = [_by_rules(places, known.listed, cut.rules) for places in known.places]
    strategies = {
        "threshold": _strategy("threshold", best, by_threshold, parts, settings, threshold=best.value),
        "rules": _strategy("rules", cut, by_rules, parts, settings, rules=cut.rules),
        "hybrid": _hybrid(cut, by_rules, known, parts, settings, rng),
    }
    explained = [_share(rules >= 0, wide >= 0) for rules, wide in zip(by_rules, by_threshold, strict=True)]
    return PointChoice(point, keeps, tuple(thresholds), strategies, (explained[0], explained[1]))


def _by_rules(places: Values, listed: Sequence[ListedRule], used: int) -> Values:
    source = np.array([*(one.source for one in listed), -1])
    return np.where(places < used, source[places], -1)


def _share(part: Values, whole: Values) -> float | None:
    return float((part & whole).sum() / whole.sum()) if whole.any() else None


class _Labels:
    """What each classifier says of a part's rows, what that changes, and whether it is right."""

    def __init__(self, part: PatientPart, thresholds: Values) -> None:
        labels = (part.scores >= thresholds).astype(np.int64)
        self.patients = part.patients
        self.right = labels == part.outcome
        self.signs = np.stack([signs_of(labels[0], one, part.outcome) for one in labels[1:]])


def _strategy(
    name: str,
    choice: ThresholdChoice | ListCut,
    sources: Sequence[Values],
    parts: Sequence[_Labels],
    settings: SelectionSettings,
    *,
    threshold: float | None = None,
    rules: int = 0,
) -> Strategy:
    handled = [
        judge(source, part.signs, part.right, part.patients) for source, part in zip(sources, parts, strict=True)
    ]
    p_value = choice.corrected if settings.corrected else choice.p_value
    passes = p_value <= settings.level and handled[0].rows > 0
    return Strategy(
        name, choice.p_value, choice.corrected, choice.looks, passes, handled[0], handled[1], threshold, rules
    )


def _hybrid(
    cut: ListCut,
    by_rules: Sequence[Values],
    known: _Known,
    parts: Sequence[_Labels],
    settings: SelectionSettings,
    rng: np.random.Generator,
) -> Strategy:
    """The rules first; for those whom no rule takes a threshold, chosen on such patients."""
    passed = (cut.corrected if settings.corrected else cut.p_value) <= settings.level and cut.rules > 0
    taken = [rules if passed else np.full(len(rules), -1) for rules in by_rules]
    rest = np.flatnonzero(taken[0] < 0)
    who, found = known.picked[0], known.picked_competence[0]
    best = choose_competence_threshold(found[rest], parts[0].signs[who[rest], rest], parts[0].patients[rest], rng)
    further = (best.corrected if settings.corrected else best.p_value) <= settings.level and best.flips.all > 0
    both = [
        np.where((rules < 0) & (ratio > best.value) & further, picked, rules)
        for rules, ratio, picked in zip(taken, known.picked_competence, known.picked, strict=True)
    ]
    handled = [judge(source, part.signs, part.right, part.patients) for source, part in zip(both, parts, strict=True)]
    # Two looks of one strategy: the better p-value counts twice.
    corrected = min(1.0, 2 * min(cut.corrected if cut.rules else 1.0, best.corrected))
    return Strategy(
        "hybrid",
        min(1.0, 2 * min(cut.p_value if cut.rules else 1.0, best.p_value)),
        corrected,
        cut.looks + best.looks,
        passed or further,
        handled[0],
        handled[1],
        best.value if further else None,
        cut.rules if passed else 0,
    )


def confirmed_in(cells: Sequence[PointChoice], level: float) -> list[tuple[str, str, str]]:
    """Strategies that passed in validation and whose test p-value by patient holds after Holm's correction.

    The two ways to give other classifiers a threshold are two studies of the same question, each corrected by itself.
    """
    found: list[tuple[str, str, str]] = []
    for keeps in ("local", "own"):
        passed = [(one, by) for one in cells if one.keeps == keeps for by in one.strategies.values() if by.passes]
        corrected = holm([by.test.by_patient for _, by in passed])
        found += [
            (one.point.name, one.keeps, by.name)
            for (one, by), p_value in zip(passed, corrected, strict=True)
            if p_value <= level and by.test.flips.right > by.test.flips.wrong
        ]
    return found
