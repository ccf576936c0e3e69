"""What was claimed of fairness against planted effects: borne out, contradicted, or nothing shown."""

import numpy as np
import pytest

from wardround.evaluate.fairness_claims import EVEN, INDEX, Arms, Claim, Trial, judge_claims, slope


def arms(effect: float, *, noise: float = 0.01, seed: int = 0, uneven: float = 0.0, fades: bool = False) -> Arms:
    """Two partitions at four levels with ten repeats; every step of privacy moves each measure by the effect."""
    rng = np.random.default_rng(seed)
    levels = ["none", "10", "1", "0.1"]
    figures: dict[str, list[list[dict[str, float | None]]]] = {}
    for partition in (EVEN, "by_class"):
        figures[partition] = []
        for level in range(4):
            extra = uneven * (partition != EVEN) * ((3 - level) / 3 if fades else 1)

            def measured(mean: float) -> float | None:
                return mean + noise * float(rng.normal())

            figures[partition].append(
                [
                    {name: measured(0.9 - effect * level) for name in ("f1", "roc_auc", "recall", "race/recall/White")}
                    | {"precision": measured(0.8), "race/recall/Black": measured(0.7 - 2 * effect * level)}
                    | {INDEX: measured(0.1 + effect * level), "overfitting": measured(0.1 - effect * level)}
                    | {"race/differential_fairness": measured(0.5 + effect * level)}
                    | {
                        f"race/{gap}": measured(0.2 + effect * level + extra)
                        for gap in ("equal_opportunity_gap", "equal_odds_gap")
                    }
                    for _ in range(10)
                ]
            )
    return Arms(figures, levels, {"race": "White"})


def verdicts(claims: list[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


def test_planted_effects_are_borne_out_and_their_opposites_contradicted() -> None:
    # In order: whole set less fair; fairer again; gaps; weaker groups; uneven; fades; worse; recall; overfitting.
    yes, no = "borne out", "contradicted"
    there = verdicts(judge_claims(arms(0.1, uneven=0.2, fades=True)))
    assert there == [yes, no, yes, yes, yes, yes, yes, yes, yes]
    turned = verdicts(judge_claims(arms(-0.1, uneven=-0.2, fades=True)))
    assert turned == [no, yes, no, no, no, no, no, no, no]


def test_nothing_is_shown_where_nothing_is() -> None:
    shown = [verdict for seed in range(20) for verdict in verdicts(judge_claims(arms(0.0, seed=seed), test_share=0.3))]
    # 180 claims, each wrong in at most 5 % of cases, and the correction for overlapping splits makes it far fewer here.
    assert shown.count("cannot be told from these data") >= 175


def test_the_difference_that_is_tested_is_the_slope() -> None:
    found = judge_claims(arms(0.05, noise=0.0))[6].tests
    assert [test.found.value for test in found] == pytest.approx([0.05] * 4)
    assert found[0].before == pytest.approx(0.9)
    assert found[0].after == pytest.approx(0.75)
    # Without any spread between repeats there is no telling of chance, so nothing is claimed.
    assert {test.standing for test in found} == {"open"}
    values = [0.3, 0.9, 0.2, 0.7, 1.4]
    assert slope(values) == pytest.approx(np.polyfit(range(5), values, 1)[0])


def test_a_level_without_a_value_costs_the_repeat_and_not_the_claim() -> None:
    made = arms(0.1)
    lost = {name: [[dict(one) for one in level] for level in own] for name, own in made.figures.items()}
    for one in lost[EVEN][-1][:4]:
        one["recall"] = None
    found = judge_claims(made._replace(figures=lost))[7].tests[0].found
    assert (found.repeats, found.verdict) == (6, "better")
    assert "undefined in 4 of 10 repeats" in found.reason


def test_a_claim_needs_half_of_its_tests_and_none_against_it() -> None:
    whole = judge_claims(arms(0.1))[0]
    good, bad = whole.tests[0], judge_claims(arms(-0.1))[0].tests[0]
    nothing = Trial("x", EVEN, good.found._replace(verdict="no difference shown"))
    unknown = "cannot be told from these data"
    for tests, verdict, counted in (
        ((good, nothing), "borne out", "1 of 2 tests for it, none against it"),
        ((good, nothing, nothing), unknown, "1 of 3 tests for it, none against it"),
        ((good, good, good, bad), unknown, "3 of 4 tests for it, 1 against it"),
        ((bad, nothing), "contradicted", "none of 2 tests for it, 1 against it"),
        ((bad, nothing, nothing), unknown, "none of 3 tests for it, 1 against it"),
        ((nothing,), unknown, "none of 1 tests for it, none against it"),
        ((), unknown, "nothing was tested"),
    ):
        claim = whole._replace(tests=tests)
        assert (claim.verdict, claim.tally_text) == (verdict, counted)


def test_recall_and_precision_that_fall_alike_do_not_bear_out_that_only_recall_falls() -> None:
    made = arms(0.1)
    rng = np.random.default_rng(3)
    alike = {
        name: [
            [{**one, "precision": (one["recall"] or 0.0) + 0.01 * float(rng.normal())} for one in level]
            for level in own
        ]
        for name, own in made.figures.items()
    }
    of = "Recall drops significantly, while the difference in precision is negligible."
    (only_recall,) = (claim for claim in judge_claims(made) if claim.words == of)
    (both,) = (claim for claim in judge_claims(made._replace(figures=alike)) if claim.words == of)
    assert only_recall.verdict == "borne out"
    # Recall falls in both partitions; so does precision, by 0.3, which is not within 0.02 of 0 in either.
    assert both.tally_text == "2 of 4 tests for it, 2 against it"
    assert both.verdict == "contradicted"


def test_negligible_is_shown_by_the_whole_interval() -> None:
    """A precision that falls by a tenth of what recall does is not negligible; one that varies widely is unknown."""
    of, rng = "Recall drops significantly, while the difference in precision is negligible.", np.random.default_rng(5)

    def verdict(fall: float, noise: float) -> str:
        figures = {
            name: [
                [{**one, "precision": 0.8 - fall * level + noise * float(rng.normal())} for one in repeats]
                for level, repeats in enumerate(own)
            ]
            for name, own in arms(0.1).figures.items()
        }
        (claim,) = (one for one in judge_claims(arms(0.1)._replace(figures=figures)) if one.words == of)
        return claim.verdict

    # Over three steps 0.03 and 0.15; ten repeats of noise 0.005 tell to within 0.005, those of noise 0.1 to 0.1.
    assert verdict(0.0, 0.005) == "borne out"
    assert [verdict(0.01, 0.001), verdict(0.05, 0.005), verdict(-0.05, 0.005)] == ["contradicted"] * 3
    assert verdict(0.0, 0.1) == "cannot be told from these data"


def test_beside_every_test_stands_what_was_held_against_what() -> None:
    # Without noise: level n of four moves each measure by 0.1 n, and uneven data add 0.2, less by a third each level.
    claims = judge_claims(arms(0.1, noise=0.0, uneven=0.2, fades=True))
    ends = {
        (claim.ends, test.what, test.partition): (test.before, test.after) for claim in claims for test in claim.tests
    }
    privacy = ("without privacy", "at the strictest level")
    assert ends[privacy, INDEX, EVEN] == pytest.approx((0.1, 0.4))
    assert ends[privacy, "race/recall/Black", "by_class"] == pytest.approx((0.7, 0.1))
    assert ends[privacy, "precision", EVEN] == pytest.approx((0.8, 0.8))
    assert ends[("at the level before", "at the strictest level"), INDEX, EVEN] == pytest.approx((0.3, 0.4))
    gap = "race/equal_odds_gap"
    assert ends[("at random", "uneven"), gap, "by_class"] == pytest.approx((0.2, 0.4))
    faded = ("difference without privacy", "difference at the strictest level")
    assert ends[faded, gap, "by_class"] == pytest.approx((0.2, 0.0))
