"""From a site's choice to what the result says of it."""

from collections.abc import Mapping, Sequence

import numpy as np

from wardround.core.contracts import Report
from wardround.runs.explain.explain_result import (
    ChoiceStrategy,
    HandedOver,
    OperatingCell,
    RuleInWords,
    SiteAnswer,
    SplitRecord,
)
from wardround.selection.evaluation import Handled
from wardround.selection.rules import WordRule, first_rule
from wardround.selection.shares import more_there
from wardround.selection.site_choice import PointChoice, Strategy
from wardround.study.sections.explain import ExplainSection
from wardround.workflows.explain import words
from wardround.workflows.explain.choices import ChosenSite
from wardround.workflows.explain.rows import SiteParts
from wardround.workflows.explain.senders import area


def site_answer(
    chosen: ChosenSite, sites: Mapping[str, SiteParts], said: ExplainSection, splits: Sequence[SplitRecord]
) -> SiteAnswer:
    """All that is told of one site; the first operating point is what the answer is about."""
    cells = [operating_cell(chosen, cell) for cell in chosen.choice.cells]
    first = main_cell(cells, said)
    rules = rules_in_words(chosen, first, sites, said)
    strategy = words.chosen_strategy(first)
    name = chosen.site.name
    names = (name, *chosen.sources)
    test = chosen.parts[1]
    return SiteAnswer(
        site=name,
        verdict=words.verdict_of(strategy),
        headline=words.headline(name, first, rules),
        sentences=tuple(words.further_sentences(name, first, [one for one in cells if one is not first])),
        k=chosen.choice.k.k,
        k_by=chosen.choice.k.how,
        train_rows=len(chosen.site.train.outcome),
        validation_rows=len(chosen.site.validation.outcome),
        test_rows=len(test.outcome),
        auc={site: area(row, test.outcome) for site, row in zip(names, test.scores, strict=True)},
        rules=tuple(rules),
        cells=tuple(cells),
        splits=tuple(splits),
    )


def main_cell(cells: Sequence[OperatingCell], said: ExplainSection) -> OperatingCell:
    """At the first operating point, with the thresholds that the study asks for, if the others sent them."""
    point = cells[0].point
    return next((one for one in cells if one.point == point and one.keeps == said.keeps), cells[0])


def operating_cell(chosen: ChosenSite, cell: PointChoice) -> OperatingCell:
    names = (chosen.site.name, *chosen.sources)
    return OperatingCell(
        point=cell.point.name,
        words=cell.point.words,
        keeps=cell.keeps,
        thresholds=dict(zip(names, cell.thresholds, strict=True)),
        explained=cell.explained[0],
        explained_test=cell.explained[1],
        strategies=tuple(strategy_of(chosen, cell, one) for one in cell.strategies.values()),
    )


def strategy_of(chosen: ChosenSite, cell: PointChoice, one: Strategy) -> ChoiceStrategy:
    threshold = one.threshold
    return ChoiceStrategy(
        name=one.name,
        p_value=one.p_value,
        corrected=one.corrected,
        looks=one.looks,
        passes=one.passes,
        confirmed=(cell.point.name, cell.keeps, one.name) in chosen.confirmed,
        rules=one.rules,
        threshold=None if threshold is None or not np.isfinite(threshold) else threshold,
        validation=handed_over(one.validation, chosen.sources),
        test=handed_over(one.test, chosen.sources),
    )


def handed_over(done: Handled, sources: Sequence[str]) -> HandedOver:
    return HandedOver(
        rows=done.rows,
        share=done.share,
        patients=done.patients,
        right=done.flips.right,
        wrong=done.flips.wrong,
        success=done.success.value,
        low=done.success.low,
        high=done.success.high,
        p_value=done.p_value,
        by_patient=done.by_patient,
        local_accuracy=done.local_accuracy,
        other_accuracy=done.other_accuracy,
        sources=dict(zip(sources, done.sources, strict=True)),
    )


def rules_in_words(
    chosen: ChosenSite, cell: OperatingCell, sites: Mapping[str, SiteParts], said: ExplainSection
) -> list[RuleInWords]:
    """Every rule of the list, those that are followed marked, with its patients here and at its source."""
    choice, test = chosen.choice, chosen.parts[1]
    own = choice.cell(cell.point, cell.keeps)
    strategy = words.chosen_strategy(cell)
    used = strategy.rules or 0 if strategy is not None and strategy.confirmed else 0
    places = first_rule(tuple(one.rule for one in choice.listed), test.frame)
    labels = test.scores >= np.array(own.thresholds)[:, None]
    found = []
    for place, one in enumerate(choice.listed):
        rows = np.flatnonzero(places == place)
        changed = labels[0, rows] != labels[1 + one.source, rows]
        right = changed & (labels[1 + one.source, rows] == test.outcome[rows])
        shares = more_there(*_counted(one.rule, chosen.site), *_counted(one.rule, sites[one.rule.source]))
        found.append(
            RuleInWords(
                words=one.rule.words(said.units),
                source=one.rule.source,
                bound=one.bound,
                mean=one.mean,
                prune_p=choice.pruned.p_values[place] if choice.pruned.p_values else None,
                used=place < used,
                rows=len(rows),
                share=len(rows) / max(1, len(test.outcome)),
                right=int(right.sum()),
                wrong=int(changed.sum() - right.sum()),
                here=shares.local,
                there=shares.other,
                more_there=shares.p_value,
                rule=one.rule.model_dump(mode="json", exclude_none=True),
            )
        )
    return found


def _counted(rule: WordRule, site: SiteParts) -> tuple[int, int]:
    frame = site.train.frame
    return int(rule.holds(frame).sum()), len(frame)


def split_record(chosen: ChosenSite, said: ExplainSection, seed: int, by: str) -> SplitRecord:
    """What one split said at the first operating point."""
    cells = [operating_cell(chosen, cell) for cell in chosen.choice.cells]
    first = main_cell(cells, said)
    strategy = words.chosen_strategy(first) or first.strategies[0]
    shown = strategy.test if strategy.passes else None
    listed = chosen.choice.listed[: strategy.rules] if strategy.passes else ()
    return SplitRecord(
        seed=seed,
        by=by,
        strategy=strategy.name if strategy.passes else "",
        passes=strategy.passes,
        confirmed=strategy.confirmed,
        share=None if shown is None else shown.share,
        success=None if shown is None else shown.success,
        low=None if shown is None else shown.low,
        high=None if shown is None else shown.high,
        by_patient=None if shown is None else shown.by_patient,
        rules=tuple(one.rule.words(said.units) for one in listed),
    )


def plain_settings(said: ExplainSection) -> Report:
    return said.model_dump(mode="json", exclude_none=True)
