"""The table of risks and outcomes that sites tell at the end, where the study asks for it: checked, and added up."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wardround.core.contracts import Report
from wardround.deploy.coordinator.answer_bounds import RowLimits, bounded
from wardround.deploy.protocol.replies import Reply
from wardround.evaluate.clinical.risk_table import band_figures
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.fields import part_of
from wardround.runs.scores import ScoreBlock
from wardround.study.sections.rounds import EvaluationSection

Numbers = np.ndarray[Any, Any]


def risks_problem(reply: Reply, said: EvaluationSection, limits: RowLimits) -> str | None:
    """Why a table is none that the site can have; none where it tells no table, which it may."""
    told = reply.header.get("risks")
    if told is None:
        return None
    width, site = len(said.cuts) + 1, str(reply.header.get("site"))
    if not is_table(told, width):
        return "its table of risks does not have the right form"
    most, cell = limits.most(site, "test"), limits.cells.get(site, 1)
    # Rounded at random, every count may be a cell too high.
    if sum(map(sum, told)) > most + 2 * width * cell:
        return f"its table of risks has more patients than the {most} that it tests at most"
    return None


def is_table(told: Any, width: int) -> bool:
    """Two lines, of patients without and with the outcome, with one count for each band."""
    return (
        isinstance(told, list)
        and len(told) == 2
        and all(isinstance(line, list) and len(line) == width for line in told)
        and all(type(one) is int and one >= 0 for line in told for one in line)
    )


def end_check(said: EvaluationSection, limits: RowLimits) -> Callable[[Reply], Any]:
    """What is wrong with a site's figures at the end, its table of risks among them."""
    return bounded(limits.figures_problem, lambda reply: risks_problem(reply, said, limits))


def score_fields(
    block: Report, told: Mapping[str, Reply], said: EvaluationSection, limits: RowLimits, seed: int
) -> dict[str, Any]:
    """The scores of a method, and its clinical figures where sites told tables of risks."""
    found = risk_figures(told, said, limits, seed)
    if not found:
        return {"scores": part_of(ScoreBlock, block)}
    reliability = found.pop("reliability")
    return {
        "scores": part_of(ScoreBlock, {**block, "reliability": reliability}),
        "clinical": part_of(ClinicalFigures, found),
    }


def risk_figures(told: Mapping[str, Reply], said: EvaluationSection, limits: RowLimits, seed: int) -> dict[str, Any]:
    """Calibration by bands, decision curve and patients flagged; nothing where no site told a table."""
    tables: dict[str, Numbers] = {
        site: np.array(reply.header["risks"], np.int64)
        for site, reply in sorted(told.items())
        if reply.header.get("risks") is not None
    }
    tables = {site: table for site, table in tables.items() if table.sum()}
    if not tables or not said.cuts:
        return {}
    cells = {site: limits.cells.get(site, 1) for site in tables}
    return band_figures(tables, said.cuts, said.threshold, cells=cells, resamples=said.resamples, seed=seed)
