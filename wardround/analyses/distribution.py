"""How columns are distributed over all sites: histogram and quantiles, by repeated counting.

The first exchanges find where the values lie and count them in bins; the next count within the bin of each quantile
until it is narrower than asked for. With small cells protected, bins stay as wide as they must
(`wardround.statistics.disclosure.grid`), and a quantile is told with the bounds between which it lies.
"""

import numpy as np

from wardround.core.analysis import Agreed, Analysis
from wardround.core.bounds import Count, Positive
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.disclosure.grid import POWERS, GridBins, leaf_counts, within_cells
from wardround.statistics.disclosure.value_range import DEPTH, first_bins, narrower_bins, told_powers
from wardround.statistics.distributions.findings import findings_of
from wardround.statistics.distributions.quantiles import Bracket, bracket_of, zoom
from wardround.statistics.selection.columns import check_columns
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows, covered_rows

LABEL = "Distribution and quantiles"
EXCHANGES = 25
TERMS = Terms(
    "how many patients have each of {columns} between edges of a fixed grid, no count below {smallest_cell}",
    lambda of: (
        len(of.settings["columns"])
        * (max(of.settings["bins"] * max(DEPTH + 1, len(of.settings["quantiles"])), 2 * POWERS) + 1)
    ),
    times=EXCHANGES,
    rows="table",
)


@recorded("analysis", TERMS)
def distribution(
    *,
    columns: tuple[str, ...],
    quantiles: tuple[float, ...] = (0.25, 0.5, 0.75),
    bins: Count = 64,
    precision: Positive = 1e-6,
    only: str = "",
    smallest_cell: Count = 1,
) -> Analysis:
    """Histogram and quantiles of numbers over all sites, by repeated counting; bounds where cells are protected."""
    conditions = read_conditions(only)

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, columns, kind="number", where="[analysis] columns")
        check_conditions(conditions, agreed)
        if not all(0 < one < 1 for one in quantiles):
            raise Refusal("quantiles lie between 0 and 1", where="[analysis] quantiles", remedy="0.5 is the median")
        return {"all": len(agreed.sites), "phase": "powers", "left": EXCHANGES - 1}

    def message(state: Tree) -> Message | None:
        if state["phase"] == "powers":
            return Message({"powers": np.zeros((len(columns), 2, POWERS))})
        if state["phase"] == "done":
            return None
        blocks = state["bins"] if state["phase"] == "histogram" else [b for one in state["zoom"] for b in one]
        level, first = (np.array([getattr(one, key) for one in blocks]) for key in ("level", "first"))
        shape = (len(columns), -1)
        return Message({"level": level.reshape(shape), "first": first.reshape(shape)})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        told: list[np.ndarray] = []
        for place, column in enumerate(columns):
            rows = complete_rows(agreed, site, numbers=(column,), only=only, cell=smallest_cell)
            values = within_cells(rows.numbers[:, 0], smallest_cell)
            if "powers" in asked.arrays:
                told.append(told_powers(values))
                continue
            level, first = (np.asarray(asked.arrays[key])[place] for key in ("level", "first"))
            blocks = [GridBins(int(k), int(i), bins) for k, i in zip(level, first, strict=True)]
            nobody = np.zeros(len(values), np.int64)
            depth = DEPTH if len(blocks) == 1 else 0
            counts = [leaf_counts(values, nobody, 1, one, depth, smallest_cell)[:, 0] for one in blocks]
            told.append(np.array(counts))
        key = "powers" if "powers" in asked.arrays else "counts"
        return Message({key: np.array(told)})

    def step(state: Tree, told: Message) -> Tree:
        if state["phase"] == "powers":
            powers = np.asarray(told.arrays["powers"])
            found = [first_bins(one, bins) for one in powers]
            silent = [name for name, one in zip(columns, found, strict=True) if one is None]
            if silent:
                raise Refusal(
                    f"no site has enough patients with {', '.join(silent)} to tell about",
                    remedy="leave these columns out, or lower smallest_cell where the sites allow it",
                )
            sites = [int(one[0].sum()) for one in powers]
            return {**state, "phase": "histogram", "bins": found, "sites": sites}
        counts, left = np.asarray(told.arrays["counts"]), state["left"] - 1
        if state["phase"] == "histogram":
            # One entry a group, of which there is one here.
            counts = counts[:, 0][:, :, None, :]
            finer = [narrower_bins(one, own) for one, own in zip(counts, state["bins"], strict=True)]
            if any(finer) and left > 12:
                kept = [one or own for one, own in zip(finer, state["bins"], strict=True)]
                return {**state, "bins": kept, "left": left}
            brackets = [
                [bracket_of(one, own, q) for q in quantiles] for one, own in zip(counts, state["bins"], strict=True)
            ]
            state = {**state, "counts": counts, "brackets": brackets, "left": left}
        else:
            brackets = [
                [narrowed(one, block, inside[0]) for one, block, inside in zip(*three, strict=True)]
                for three in zip(state["brackets"], state["zoom"], counts, strict=True)
            ]
            state = {**state, "brackets": brackets, "left": left}
        return next_zoom(state, precision, bins)

    def report(state: Tree) -> Report:
        return findings_of(state, columns, quantiles, smallest_cell)

    wanted = tuple(dict.fromkeys((*columns, *(one.column for one in conditions))))
    return Analysis(
        wanted,
        begin,
        message,
        ask,
        step,
        report,
        most=EXCHANGES,
        covers=lambda agreed, site: [covered_rows(agreed, site, (one,), only) for one in columns],
    )


def narrowed(bracket: Bracket, block: GridBins, counts: np.ndarray) -> Bracket:
    return zoom(bracket, block, counts) if bracket.is_open else bracket


def next_zoom(state: Tree, precision: float, bins: int) -> Tree:
    """The bins within each quantile's bin, as long as one of them is wider than asked for."""
    blocks, brackets = [], []
    for own, found in zip(state["bins"], state["brackets"], strict=True):
        scale = own.width * own.amount
        row = [one if one.high - one.low > precision * scale else one._replace(is_open=False) for one in found]
        brackets.append(row)
        blocks.append([one.block(bins) for one in row])
    is_over = not any(one.is_open for row in brackets for one in row) or state["left"] < 1
    return {**state, "brackets": brackets, "zoom": blocks, "phase": "done" if is_over else "zoom"}
