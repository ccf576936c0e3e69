"""A budget stops training before it is passed; the best model is kept, and a resumed run spends no more."""

import numpy as np
import pytest

from wardround.core.contracts import RoundRecord
from wardround.core.errors import Refusal
from wardround.engine.budget import UNLIMITED, CostBudget, Spending, refuse_spent
from wardround.engine.machine.power import joule_counter


def record(number: int, sent: int) -> RoundRecord:
    return RoundRecord(number, ("a",), 1, 10, 1.0, 1.0, sent, 0)


def limited(most: float) -> CostBudget:
    return CostBudget({"bytes": most}, lambda one: {"bytes": float(one.bytes_down)})


def test_the_next_round_is_taken_to_cost_what_the_dearest_did():
    budget = limited(100.0)
    assert Spending().rounds_left(budget) == (1, ""), "nothing is known yet"
    spent = Spending().add(budget, [record(1, 10), record(2, 30)])
    # 40 are spent; of 60 two rounds of 30 still fit.
    assert (spent.total, spent.dearest, spent.rounds_left(budget)) == ({"bytes": 40.0}, {"bytes": 30.0}, (2, "bytes"))
    assert spent.add(budget, [record(3, 30), record(4, 30)]).rounds_left(budget) == (0, "bytes")
    assert spent.rounds_left(UNLIMITED)[0] == 10**9


def test_a_budget_that_the_first_round_passes_is_refused():
    refuse_spent(limited(100.0)._replace(first={"bytes": 100.0}))
    with pytest.raises(Refusal, match="budget of 99 bytes is spent before it begins: one round takes 100"):
        refuse_spent(limited(99.0)._replace(first={"bytes": 100.0}))


def test_joules_are_read_from_the_kernels_counters(tmp_path):
    assert joule_counter(tmp_path) is None
    for name, start in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 900), ("intel-rapl:0:0", 7)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{start}\n")
        (tmp_path / name / "max_energy_range_uj").write_text("1000\n")
    used = joule_counter(tmp_path)
    assert used is not None
    assert used() == 0.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("8000000\n")
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("100\n")  # was full at 1,000 and began again: 200 more
    assert used() == pytest.approx(3.0002)
    np.testing.assert_allclose(used(), 0.0)
