"""Equal steps, equal traffic, equal scope: every number from rounds written by hand."""

from typing import Any

import pytest

from wardround.workflows.cost.equal_cost import Trainer, budgets

ROWS = {"a": 20, "b": 70}
"""With batches of 32, site a takes 1 step an epoch and site b ceil(70 / 32) = 3."""


def entry(method: str, number: int, losses: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    """A round: 100 bytes each way, unless told otherwise."""
    measures = {} if losses is None else {"validation_loss": {"weighted": 0.0, "sites": losses}}
    measures |= {"told": more.pop("told")} if "told" in more else {}
    plain = {"repeat": 0, "sites": ["a", "b"], "bytes_down": 100, "bytes_up": 100, "measures": measures}
    return {"method": method, "round": number, **plain, **more}


def silent(number: int, a: float, b: float) -> dict[str, Any]:
    return entry("local", number, {"a": a, "b": b}, bytes_down=0, bytes_up=0)


GLOBAL = [entry("global", n, {"a": 1.0 - 0.1 * n, "b": 2.0 - 0.1 * n}) for n in (1, 2, 3, 4)]
LOCAL = [silent(n, 0.9 - 0.1 * n, 1.9 - 0.1 * n) for n in (1, 2, 3, 4)]
EROSION = [
    entry("erosion", n, {"a": a, "b": b}, user=user, told={"alpha": alpha})
    for user, alpha in (("a", {"a": 1.0, "b": 0.5}), ("b", {"a": 0.0, "b": 1.0}))
    for n, a, b in ((1, 0.8, 1.8), (2, 0.7, 1.7))
]
TRAINERS = [
    Trainer("global", "fed_avg", {"batch_size": 32}),
    Trainer("local", "local", {"batch_size": 32}),
    Trainer("erosion", "weight_erosion", {"batch_size": 32}),
]


def test_steps_a_round() -> None:
    assert Trainer("m", "fed_avg", {"batch_size": 32, "local_epochs": 2}).steps(70) == 6
    assert Trainer("m", "fed_avg", {"batch_size": 0, "local_epochs": 2}).steps(70) == 2
    assert Trainer("m", "fed_avg", {}).steps(33) == 2, "the default batch of 32"
    assert Trainer("m", "fed_avg", {}).steps(0) == 0
    assert Trainer("m", "fed_sgd", {}).steps(70) == 1
    assert Trainer("m", "weight_erosion", {"batch_size": 8}).steps(70) == 1, "one gradient a round, as printed"
    assert Trainer("m", "weight_erosion", {"updates": "local", "batch_size": 8}).steps(70) == 9


def test_equal_steps_is_the_smallest_total_at_each_site() -> None:
    told = budgets([*GLOBAL, *LOCAL, *EROSION], TRAINERS, ROWS).plain()["steps"]
    # Weight Erosion steps once in each of its 2 rounds: 2 at both sites. The others step 4 times at a, 12 times at b.
    assert told["budget"] == {"a": 2, "b": 2}
    # At b one round takes 3 steps, past the budget of 2: no figure, rather than one over site a alone.
    assert told["methods"]["global"]["loss"] is None
    assert "past the budget" in told["methods"]["global"]["undefined"]
    # The losses of round 2 at the sites that asked: 0.7 at a, 1.7 at b.
    assert told["methods"]["erosion"]["loss"] == pytest.approx((0.7 + 1.7) / 2)

    one_step = [Trainer("global", "fed_avg", {"batch_size": 0}), Trainer("local", "local", {"batch_size": 0})]
    told = budgets([*GLOBAL[:3], *LOCAL], one_step, ROWS).plain()["steps"]
    # One step a round for both; global stopped after 3 rounds, so local is read in round 3 too: 0.6 and 1.6.
    assert told["budget"] == {"a": 3, "b": 3}
    assert told["methods"]["local"] == {"loss": pytest.approx(1.1), "round": 3.0, "spends": True}
    assert told["methods"]["global"]["loss"] == pytest.approx((0.7 + 1.7) / 2)


def test_equal_traffic_is_for_those_who_send() -> None:
    told = budgets([*GLOBAL, *LOCAL, *EROSION], TRAINERS, ROWS).plain()["traffic"]
    # Weight Erosion sends 2 rounds x 200 bytes for each asking site; global 4 x 200, so it is read in round 2.
    assert told["budget"] == {"a": 400, "b": 400}
    assert told["methods"]["global"] == {"loss": pytest.approx((0.8 + 1.8) / 2), "round": 2.0, "spends": True}
    # Local sends nothing: its last loss (0.5 and 1.5), and it is said.
    assert told["methods"]["local"] == {"loss": pytest.approx(1.0), "spends": False}


def test_choosing_partners_counts_as_traffic_and_sets_the_scope() -> None:
    chosen = [
        entry("ndoye", 0, user="a", told={"chosen": ["b"], "score": {"b": 0.1}}, bytes_up=500),
        entry("ndoye", 1, {"a": 0.5}, user="a"),
        entry("ndoye", 2, {"a": 0.4}, user="a"),
    ]
    alone = [entry("ndoye", 0, user="b", told={"chosen": [], "score": {"a": -0.1}}, bytes_up=500)]
    alone += [entry("ndoye", n, {"b": 1.5}, user="b", sites=["b"], bytes_down=50, bytes_up=50) for n in (1, 2)]
    trainers = [TRAINERS[0], Trainer("ndoye", "fed_avg", {"batch_size": 32}, chooses=True)]
    told = budgets([*GLOBAL, *chosen, *alone], trainers, ROWS).plain()
    # For a: 600 bytes to choose, then 200 a round: 1,000 in all; b: 600 and 100 a round: 800. Global: 800.
    assert told["traffic"]["budget"] == {"a": 800, "b": 800}
    # Within 800 bytes, a has trained one round (loss 0.5) and b both (1.5).
    assert told["traffic"]["methods"]["ndoye"]["loss"] == pytest.approx((0.5 + 1.5) / 2)
    # Site a learned with b (2 sites), b alone (1).
    scope = told["scope"]["methods"]["ndoye"]
    assert (scope["scope"], scope["smallest"], scope["largest"]) == (1.5, 1.0, 2.0)


def test_scope_is_the_effective_number_of_sites() -> None:
    told = budgets([*GLOBAL, *LOCAL, *EROSION], TRAINERS, ROWS).plain()["scope"]
    assert told["sites"] == 2
    assert told["methods"]["local"]["scope"] == 1.0
    assert told["methods"]["global"]["scope"] == 2.0
    # Weights 1 and 0.5: 1.5² / 1.25 = 1.8; weights 0 and 1: 1. Their mean is 1.4, which is nearer to one site.
    assert told["methods"]["erosion"]["scope"] == pytest.approx(1.4)
    assert told["methods"]["erosion"]["group"] == 1
    assert told["methods"]["erosion"]["loss"] == pytest.approx((0.7 + 1.7) / 2)


def test_sites_of_one_cluster_are_one_scope() -> None:
    rows = {"a": 20, "b": 70, "c": 20}
    clusters = {"a": 1, "b": 2, "c": 1}
    records = [entry("cluster", 1, {"a": 0.5, "b": 0.6, "c": 0.7}, sites=list(rows), told={"cluster": clusters})]
    told = budgets(records, [Trainer("cluster", "cluster", {})], rows).plain()["scope"]["methods"]["cluster"]
    # a and c share a model (2 sites each), b has its own: (2 + 1 + 2) / 3.
    assert told["scope"] == pytest.approx(5 / 3)


def test_a_site_that_was_away_took_no_step_and_repeats_are_averaged() -> None:
    first = [entry("global", 1, {"a": 1.0, "b": 1.0}), entry("global", 2, {"a": 0.8, "b": 0.8}, sites=["b"])]
    second = [{**one, "repeat": 1, "measures": GLOBAL[0]["measures"]} for one in first]
    told = budgets([*first, *second], TRAINERS[:1], ROWS).plain()
    # Site a was there in round 1 alone: one step in each repeat, and b 2 x 3.
    assert told["steps"]["budget"] == {"a": 1, "b": 6}
    # The last losses: 0.8 and 0.8 in the first repeat, 0.9 and 1.9 in the second.
    assert told["scope"]["methods"]["global"]["loss"] == pytest.approx((0.8 + 0.8 + 0.9 + 1.9) / 4)


def test_the_pool_is_all_sites_at_once() -> None:
    records = [entry("pool", 1, {"a": 1.0, "b": 1.0}, sites=["all"], bytes_down=0, bytes_up=0)]
    told = budgets(records, [Trainer("pool", "centralized", {"batch_size": 32})], ROWS).plain()
    assert told["scope"]["methods"]["pool"]["scope"] == 2.0
    assert told["steps"]["budget"] == {"a": 3, "b": 3}, "ceil(90 / 32) steps"


def test_a_method_without_losses_is_told_as_such() -> None:
    told = budgets([entry("global", 1)], TRAINERS[:1], ROWS).plain()
    assert told["steps"]["methods"]["global"]["undefined"] == "no validation loss was written down"
    assert told["scope"]["methods"]["global"]["scope"] is None


def test_equal_arithmetic_and_equal_grams() -> None:
    """Each round of `global` trains on 90 rows and takes 36 s of a core, that of `twice` on 180 and 144 s."""
    once = [{**one, "rows": 90, "cpu_seconds": 36.0} for one in GLOBAL]
    twice = [{**one, "method": "twice", "rows": 90, "cpu_seconds": 144.0} for one in GLOBAL]
    trainers = [TRAINERS[0], Trainer("twice", "fed_avg", {"batch_size": 32, "local_epochs": 2})]
    told = budgets([*once, *twice], trainers, ROWS).plain()
    # Four rounds of 90 rows are 360, which `twice` has trained on after two.
    assert told["flops"]["budget"] == {"a": 360, "b": 360}
    assert told["flops"]["methods"]["twice"]["round"] == 2
    # A method that trains a part of the model takes half the operations for a row: as many after twice the rows.
    half = [TRAINERS[0], trainers[1].__class__("twice", "fed_avg", trainers[1].settings, row_flops=0.5)]
    told_half = budgets([*once, *twice], half, ROWS).plain()["flops"]
    assert (told_half["budget"]["a"], told_half["methods"]["twice"]["round"]) == (360, 4)
    # 4 x 36 s x 15 W = 0.6 Wh, at 480 g/kWh 0.288 g (the traffic adds a billionth): one round of `twice`.
    assert told["grams"]["budget"]["a"] == pytest.approx(0.288, rel=1e-3)
    assert told["grams"]["methods"]["twice"]["round"] == 1
    assert told["grams"]["methods"]["global"]["round"] == 4
