"""What is told of few patients cannot be worked out: not from totals, not from the difference of two answers."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.support.amount import examples
from wardround.core.codes.json_arrays import unpack
from wardround.core.contracts import Message, Site
from wardround.queries.cards import describe
from wardround.queries.category_counts import category_counts
from wardround.queries.cells import coarse_ends, coarse_moments, coarse_share, fences, in_cells, step_above
from wardround.queries.extremes import extremes
from wardround.queries.histogram import histogram
from wardround.queries.moments import moments

CELL = 10


def patients(seed: int, rows: int = 100) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.normal(60, 12, rows)
    age[random.random(rows) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "stay": random.lognormal(1.5, 1.2, rows),
            "smokes": (random.random(rows) < 0.3).astype(float),
            "ward": random.choice(["a", "b", "c", "d"], rows, p=[0.5, 0.3, 0.14, 0.06]),
        }
    )


def told(frame: pd.DataFrame, cell: int = CELL) -> dict[str, np.ndarray]:
    """All statistics that preparation asks a site for."""
    site, numbers = Site("A", frame), ("age", "stay", "smokes")
    edges = Message({"edges": np.tile(np.linspace(0.0, 100.0, 65), (3, 2, 1))})
    counts = unpack(
        category_counts(columns=("ward",), most=9, smallest_cell=cell).ask(Message({}), site).arrays["counts"]
    )
    return {
        **moments(columns=numbers, smallest_cell=cell).ask(Message({}), site).arrays,
        **extremes(columns=numbers, smallest_cell=cell).ask(Message({}), site).arrays,
        **histogram(columns=numbers, smallest_cell=cell).ask(edges, site).arrays,
        "wards": np.array([counts["ward"].get(name, 0) for name in "abcd"]),
        "card": np.array([describe("A", frame, "ward", smallest_cell=cell).rows]),
    }


# ---- by hand ----


def test_steps_and_shares_by_hand():
    assert [step_above(least) for least in (0.0, 0.25, 0.3, 5.0)] == [0.0, 0.25, 0.5, 8.0]
    # 2 / 30 = 0.067: the step is 1/8, and one patient, 1/30, is about a quarter of it.
    assert coarse_share(0.7, 30) == 0.75


def test_moments_by_hand():
    # 0 ... 19: quartiles 4 and 15, room 16.5, so nothing is clipped. Mean 9.5, reach 9.5, variance 33.25. The step of
    # the mean is the power of two above 5 * 9.5 / 20 = 2.375: 4, so 9.5 is told as 8; that of the variance the one
    # above 5 * 90.25 / 20 = 22.6: 32.
    assert coarse_moments(np.arange(20.0), CELL) == (8.0, 32.0)
    # Fewer than a cell of others: four smokers among a hundred are clipped to what everybody else is.
    assert coarse_moments(np.repeat([0.0, 1.0], [96, 4]), CELL) == (0.0, 0.0)
    assert coarse_moments(np.full(12, 3.7), CELL) == (pytest.approx(3.7), 0.0)
    assert coarse_moments(np.arange(9.0), CELL) == (0.0, 0.0)


def test_fences_keep_a_patient_far_out_from_showing():
    values = np.append(np.arange(99.0), 1e6)
    # Quartiles 24 and 75, room 1.5 * 51 = 76.5; the tenth from either end lies within.
    assert fences(values, CELL) == (24 - 76.5, 75 + 76.5)
    assert coarse_moments(values, CELL) == coarse_moments(np.append(np.arange(99.0), 1e9), CELL)


def test_ends_by_hand():
    # The tenth from below is 9, from above 90; a 64th of 81 is 1.27, the step 2: from 8 to 90.
    assert coarse_ends(np.arange(100.0), CELL) == (8.0, 90.0, 2.0)
    assert coarse_ends(np.arange(19.0), CELL) is None
    assert coarse_ends(np.repeat([0.0, 1.0], [97, 3]), CELL) == (0.0, 0.0, 0.0)


# ---- suppressed cells cannot be worked out from totals ----


@pytest.mark.parametrize(("cell", "groups"), [(3, 2), (4, 3), (5, 2), (3, 3)])
def test_exhaustively_every_small_group_has_at_least_two_possible_sizes(cell, groups):
    seen: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for sizes in product(range(2 * cell), repeat=groups):
        answer = (*(in_cells(size, cell) for size in sizes), in_cells(sum(sizes), cell))
        seen.setdefault(answer, set()).add(sizes)
    certain = {
        sizes
        for tables in seen.values()
        for sizes in tables
        for place, size in enumerate(sizes)
        if 0 < size < cell and len({other[place] for other in tables}) == 1
    }
    # As many groups as a cell holds, each one short of the next: the one exception that is told in `cells`.
    short = {
        sizes for sizes in product((cell - 1, 2 * cell - 1), repeat=groups) if min(sizes) < cell and groups == cell
    }
    assert certain == short


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 60), min_size=2, max_size=8))
def test_by_linear_programming_a_small_group_is_never_pinned_down(sizes):
    answer, total = [in_cells(size, CELL) for size in sizes], in_cells(sum(sizes), CELL)
    rows = np.array([np.ones(len(sizes)), -np.ones(len(sizes))])
    for place, size in enumerate(sizes):
        if not 0 < size < CELL:
            continue
        goal = np.eye(len(sizes))[place]
        least, most = (
            linprog(
                sign * goal,
                A_ub=rows,
                b_ub=[total + CELL - 1, -total],
                bounds=[(one, one + CELL - 1) for one in answer],
            ).fun
            * sign
            for sign in (1, -1)
        )
        assert least <= size <= most
        assert most - least >= 1


# ---- two answers that differ by one patient ----


@pytest.mark.parametrize("seed", range(3))
def test_without_cells_the_difference_is_the_patient(seed):
    """The positive control."""
    frame = patients(seed)
    whole = told(frame, 1)
    for gone in range(0, len(frame), 9):
        rest, row = told(frame.drop(index=gone), 1), frame.iloc[gone]
        assert whole["sum"][1] - rest["sum"][1] == pytest.approx(row["stay"], rel=1e-9)
        assert "abcd"[int(np.argmax(whole["wards"] - rest["wards"]))] == row["ward"]


@pytest.mark.parametrize("seed", range(3))
def test_in_cells_no_difference_is_a_patient(seed):
    frame = patients(seed)
    whole = told(frame)
    for name in ("count", "missing", "below", "counts", "known", "wards", "card"):
        assert (whole[name] % CELL == 0).all()
    guesses = []
    for gone in range(len(frame)):
        rest, row = told(frame.drop(index=gone)), frame.iloc[gone]
        for name in ("count", "missing", "known", "wards", "card"):
            assert set(np.unique(np.abs(whole[name] - rest[name]))) <= {0, CELL}
        fallen = np.flatnonzero(whole["wards"] - rest["wards"])
        guesses.append(("abcd"[fallen[0]] if len(fallen) else "a") == row["ward"])
    # A ward shows only where its number just makes a whole cell; else the best guess is the largest ward.
    prior = float((frame["ward"] == "a").mean())
    exact = sum(int((frame["ward"] == name).sum()) for name in "bcd" if (frame["ward"] == name).sum() % CELL == 0)
    assert np.mean(guesses) == pytest.approx(prior + exact / len(frame))


def test_a_patient_more_or_less_moves_a_told_mean_seldom_and_then_by_one_step():
    moved = []
    for seed in range(30):
        ordered = np.sort(patients(seed)["stay"].to_numpy())
        clipped = np.clip(ordered, *fences(ordered, CELL))
        reach = np.abs(clipped - clipped.mean()).max()
        whole, step = coarse_moments(ordered, CELL).mean, step_above(CELL / 2 * reach / len(ordered))
        away = np.array([whole - coarse_moments(np.delete(ordered, gone), CELL).mean for gone in range(len(ordered))])
        # Where the grid itself changes (its step is a power of two), by less than the coarser of the two.
        assert np.abs(away).max() <= 2 * step
        moved.append(np.mean(away != 0))
    # A patient's weight is at most a fifth of a step, and mostly much less.
    assert np.mean(moved) < 0.2


def test_no_choice_of_edges_closes_in_on_a_patient():
    """Searching for where the count below an edge jumps gives a point of the grid, never a patient's value."""
    frame = patients(5)
    ordered = np.sort(frame["stay"].to_numpy())
    ends = coarse_ends(ordered, CELL)

    def below(edge: float, cell: int) -> int:
        query = histogram(columns=("stay",), smallest_cell=cell)
        edges = Message({"edges": np.array([[[edge, edge + 1.0]]])})
        return int(query.ask(edges, Site("A", frame)).arrays["below"][0, 0])

    def search(rank: int, cell: int) -> float:
        low, high = 0.0, 2 * float(ordered[-1])
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if below(middle, cell) >= rank else (middle, high)
        return high

    assert search(50, 1) == pytest.approx(ordered[49], rel=1e-9)  # the positive control
    jump = search(50, CELL)
    assert np.abs(jump - ordered).min() > 1e-6
    # Half a step from a point of the grid, where edges are moved to the next one.
    assert (jump / ends.step) % 1 == pytest.approx(0.5, abs=1e-6)
    # The outermost patients are never reached: no edge tells that all are below it.
    assert below(1e9, CELL) == in_cells(int((ordered <= ends.high).sum()), CELL)
    assert below(-1e9, CELL) == in_cells(int((ordered < ends.low).sum()), CELL)
