"""Shares and withdrawals by hand, and what folders say about who did what, also when they say it wrongly."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from wardround.core.errors import Refusal
from wardround.incentives.statement import ALONE, figures_of, read_facts, settle_dilution, statement

ROWS = {"freetown": 100, "kenema": 300, "bo": 50, "makeni": 50}
"""Training rows: 500 together."""


def all_of(candidates: tuple[str, ...]) -> Sequence[str]:
    return candidates


# How far each site is diluted, and who withdraws.


def test_shares_are_of_all_that_train_the_asking_site_included() -> None:
    """Everybody is chosen: 100, 300, 50, 50 of 500 rows; weights 1, 2, 1, 1 of 5."""
    weights = {"freetown": 1.0, "kenema": 2.0, "bo": 1.0, "makeni": 1.0}
    found = settle_dilution(all_of, ROWS, {"kenema": 0.6}, "freetown", weights=weights)
    assert found.partners == ("kenema", "bo", "makeni")
    rows = {one["site"]: (one["rows"], one["row_share"], one["weight_share"]) for one in found.table}
    assert rows == {
        "freetown": (100, 0.2, 0.2),
        "kenema": (300, 0.6, 0.4),
        "bo": (50, 0.1, 0.2),
        "makeni": (50, 0.1, 0.2),
    }
    assert {one["site"]: one["limit"] for one in found.table}["kenema"] == 0.6
    assert not any(one["over"] for one in found.table)
    assert found.reasons == {}
    assert found.advice == ""
    assert found.words == "Training goes ahead with kenema, bo, makeni. Nobody withdraws."
    json.dumps(found.table)


def test_who_is_over_its_limit_withdraws_and_the_choice_is_made_again() -> None:
    """The two largest: kenema 300 and bo 50 beside 100, so kenema has 300/450 = 66.7 % > 40 %. Then bo and makeni: 50
    of 200 each, a quarter, within bo's limit of 0.3. The rows of kenema in the table are those that it saw."""
    asked: list[tuple[str, ...]] = []

    def two_largest(candidates: tuple[str, ...]) -> list[str]:
        asked.append(candidates)
        return sorted(candidates, key=lambda site: -ROWS[site])[:2]

    found = settle_dilution(two_largest, ROWS, {"kenema": 0.4, "bo": 0.3}, "freetown")
    assert asked == [("kenema", "bo", "makeni"), ("bo", "makeni")]
    assert found.partners == ("bo", "makeni")
    assert found.reasons == {
        "kenema": "kenema withdrew: it would be 66.7% of the training rows, and it accepts at most 40.0%."
    }
    assert [(one["site"], one["over"]) for one in found.table] == [
        ("bo", False),
        ("freetown", False),
        ("makeni", False),
        ("kenema", True),
    ]
    shares = {one["site"]: one["row_share"] for one in found.table}
    assert shares == pytest.approx({"bo": 0.25, "freetown": 0.5, "makeni": 0.25, "kenema": 300 / 450})
    assert "kenema withdrew" in found.words


def test_the_partners_stay_in_the_order_of_the_choice() -> None:
    found = settle_dilution(lambda candidates: ["makeni", "kenema", "bo"], ROWS, {}, "freetown")
    assert found.partners == ("makeni", "kenema", "bo")


def test_over_by_weight_alone() -> None:
    """bo has a tenth of the rows and 3 of 6 of the weight."""
    weights = {"freetown": 1.0, "kenema": 1.0, "bo": 3.0, "makeni": 1.0}
    found = settle_dilution(all_of, ROWS, {"bo": 0.4}, "freetown", weights=weights)
    assert found.partners == ("kenema", "makeni")
    assert found.reasons["bo"] == (
        "bo withdrew: it would be 10.0% of the training rows and 50.0% of the weight, and it accepts at most 40.0%."
    )


def test_a_withdrawn_site_is_never_offered() -> None:
    offered: list[tuple[str, ...]] = []
    found = settle_dilution(lambda c: offered.append(c) or c, ROWS, {}, "freetown", withdrawn=["kenema"])
    assert offered == [("bo", "makeni")]
    assert found.partners == ("bo", "makeni")
    assert found.reasons == {"kenema": "kenema had withdrawn before the choice was made."}


def test_all_withdrawn_is_said_and_the_local_model_offered() -> None:
    """Each of the three is over 0.05 at once: 300, 50 and 50 of 500. The choice is not asked about nobody."""
    calls = []
    found = settle_dilution(lambda c: calls.append(c) or c, ROWS, dict.fromkeys(ROWS, 0.05), "freetown")
    assert len(calls) == 1
    assert found.partners == ()
    assert found.advice == ALONE == 'no partner is left: train alone with [algorithm] name = "local"'
    assert found.words.startswith('No partner is left: train alone with [algorithm] name = "local".')
    assert set(found.reasons) == {"kenema", "bo", "makeni"}
    assert all(one["over"] for one in found.table)
    everyone = settle_dilution(all_of, ROWS, {}, "freetown", withdrawn=["kenema", "bo", "makeni"])
    assert (everyone.partners, everyone.advice, everyone.table) == ((), ALONE, [])


def test_a_choice_of_nobody_is_no_withdrawal() -> None:
    found = settle_dilution(lambda candidates: [], ROWS, {"kenema": 0.1}, "freetown")
    assert (found.partners, found.reasons, found.advice) == ((), {}, ALONE)


def test_the_asking_site_has_no_limit_in_its_own_study() -> None:
    assert settle_dilution(all_of, ROWS, {"freetown": 0.01}, "freetown").partners == ("kenema", "bo", "makeni")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"limits": {"kenma": 0.4}}, r"'kenma' is not among the sites \(\[partners\] limits\).*did you mean 'kenema'"),
        ({"withdrawn": ["Bo"]}, r"'Bo' is not among the sites \(\[partners\] withdrawn\).*did you mean 'bo'"),
        ({"withdrawn": ["freetown"]}, "'freetown' asks for partners and has withdrawn"),
        ({"limits": {"bo": 1.4}}, r"the limit 1.4 is not a share \(site bo\)"),
        ({"limits": {"bo": -0.1}}, r"the limit -0.1 is not a share \(site bo\)"),
        ({"weights": {"freetown": 1.0, "kenema": 1.0, "bo": 1.0}}, r"no weight \(site makeni\)"),
        ({"asking": "lunsar"}, r"'lunsar' is not among the sites \(\[study\] user\)"),
    ],
)
def test_wrong_settings_are_refused_with_their_place(settings: dict[str, Any], words: str) -> None:
    given = {"limits": {}, "asking": "freetown", **settings}
    limits, asking = given.pop("limits"), given.pop("asking")
    with pytest.raises(Refusal, match=f"(?i){words}"):
        settle_dilution(all_of, ROWS, limits, asking, **given)


# What folders say. They are written here line by line as `run` and `partners` write them.


def a_round(number: int, sites: Sequence[str], **more: Any) -> dict[str, Any]:
    record = {"method": "weight_erosion", "repeat": 0, "round": number, "sites": list(sites), "count": len(sites)}
    return {**record, "rows": 9, "seconds": 0.1, "bytes_down": 8, "bytes_up": 8, "measures": {}, **more}


def weighed(alpha: Mapping[str, float], **told: Any) -> dict[str, Any]:
    return {"told": {"alpha": alpha, **told}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A run folder of four hospitals in which freetown asks, with these rounds and additions to its result."""

    def make(rounds: Sequence[Mapping[str, Any]] = (), *, user: str | None = "freetown", **result: Any) -> Path:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        manifest = {"kind": "run", "study": {"study": {"name": "triage", "user": user}}, "study_hash": "5" * 64}
        sites = [{"name": site, "train": rows} for site, rows in ROWS.items()]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        (folder / "result.json").write_text(json.dumps({"study": "triage", "kind": "run", "sites": sites, **result}))
        (folder / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rounds))
        return folder

    return make


def of_partners(write: Callable[..., Path], scores: Mapping[str, Any], name: str = "ndoye", **verdict: Any) -> Path:
    measures = [{"name": name, "scores": scores}]
    return write(kind="partners", asking="freetown", measures=measures, verdict={"partners": [], **verdict})


def paid(folder: Path, rule: str, budget: int) -> dict[str, int]:
    told = statement(read_facts(folder), rule, budget)
    assert sum(one["cents"] for one in told["payments"]) + told["back_to_payer_cents"] == budget
    return {one["site"]: one["cents"] for one in told["payments"]}


def test_rounds_count_who_was_there(write: Callable[..., Path]) -> None:
    """kenema in 1 and 2, bo in 2 alone, makeni never; freetown asks: 200 and 100 of 300 cents."""
    folder = write([a_round(1, ["freetown", "kenema"]), a_round(2, ["freetown", "kenema", "bo"])])
    assert paid(folder, "rounds", 300) == {"kenema": 200, "bo": 100, "makeni": 0}
    figures = figures_of(read_facts(folder), "rounds")
    assert {site: figure.words for site, figure in figures.items()} == {
        "kenema": "2 rounds (1 to 2)",
        "bo": "1 round (2)",
        "makeni": "no round",
    }


def test_the_choice_in_round_0_is_no_round_of_training(write: Callable[..., Path]) -> None:
    """Round 0 asked all four; only kenema then trained. Ranks by score: kenema 1, bo 2; makeni never answered: shares
    2 and 1 of 3."""
    told = {"score": {"kenema": 0.3, "bo": -0.2, "makeni": None}, "chosen": ["kenema"], "probes": 2}
    folder = write([a_round(0, list(ROWS), measures={"told": told}), a_round(1, ["freetown", "kenema"])])
    assert paid(folder, "rounds", 300) == {"kenema": 300, "bo": 0, "makeni": 0}
    assert paid(folder, "rank", 300) == {"kenema": 200, "bo": 100, "makeni": 0}
    assert paid(folder, "inclusion", 300) == {"kenema": 300, "bo": 0, "makeni": 0}


def test_weights_count_where_a_site_was_and_the_model_moved(write: Callable[..., Path]) -> None:
    """kenema: 1 + 0.5 in rounds 1 and 3 (round 2 was skipped, in round 4 the algorithm had stopped) = 1.5.
    bo: 0.5 in round 3 (it was not there in round 1, though its weight is told) = 0.5. So 300 and 100 of 400 cents."""
    everyone = ["freetown", "kenema", "bo"]
    folder = write(
        [
            a_round(1, ["freetown", "kenema"], measures=weighed({"kenema": 1.0, "bo": 0.9}, skipped=0, stopped=False)),
            a_round(2, everyone, measures=weighed({"kenema": 1.0, "bo": 0.9}, skipped=1, stopped=False)),
            a_round(3, everyone, measures=weighed({"kenema": 0.5, "bo": 0.5}, skipped=1, stopped=False)),
            a_round(4, everyone, measures=weighed({"kenema": 0.5, "bo": 0.5}, skipped=1, stopped=True)),
        ]
    )
    assert read_facts(folder).training.weights == {"freetown": 0.0, "kenema": 1.5, "bo": 0.5}
    assert paid(folder, "weights", 400) == {"kenema": 300, "bo": 100, "makeni": 0}


def test_the_order_of_the_lines_does_not_matter(write: Callable[..., Path]) -> None:
    rounds = [a_round(n, ["kenema"], measures=weighed({"kenema": 1.0}, skipped=n // 2)) for n in (1, 2, 3)]
    forward = read_facts(write(rounds)).training
    assert read_facts(write(rounds[::-1])).training == forward
    assert forward.weights == {"kenema": 2.0}, "round 2 was skipped, for skipped rose from 0 to 1"


def test_weights_that_were_not_written_down_every_round_are_refused(write: Callable[..., Path]) -> None:
    folder = write([a_round(1, ["kenema"]), a_round(2, ["kenema"], measures=weighed({"kenema": 1.0}))])
    with pytest.raises(Refusal, match=r"weight in 1 of 2 rounds .*\[evaluation\] every = 1"):
        paid(folder, "weights", 100)


def test_without_an_asking_site_every_site_earns(write: Callable[..., Path]) -> None:
    folder = write([a_round(1, list(ROWS))], user=None)
    assert paid(folder, "rounds", 400) == dict.fromkeys(ROWS, 100)
    assert statement(read_facts(folder), "rounds", 400)["payer"] is None


def test_ranks_follow_the_scores_of_the_choice(write: Callable[..., Path]) -> None:
    """Larger is better: bo 1st, kenema and makeni equal 2nd: shares 3, 2, 2 of 7."""
    scores = {"kenema": {"value": -0.5, "error": 0.1}, "bo": {"value": 0.2}, "makeni": {"value": -0.5}}
    folder = of_partners(write, scores, partners=["bo"])
    assert paid(folder, "rank", 700) == {"kenema": 200, "bo": 300, "makeni": 200}
    assert figures_of(read_facts(folder), "rank")["kenema"].words == "place 2 of 3 (score -0.5 ± 0.1)"


def test_who_withdrew_is_neither_ranked_nor_paid(write: Callable[..., Path]) -> None:
    """Of the two that are left kenema is 2nd: shares 2 and 1 of 3."""
    scores = {site: {"value": value} for site, value in {"kenema": 0.1, "bo": 0.9, "makeni": 0.4}.items()}
    folder = of_partners(write, scores, partners=["makeni"], withdrawn=["bo"])
    assert paid(folder, "rank", 300) == {"kenema": 100, "bo": 0, "makeni": 200}
    assert paid(folder, "inclusion", 300) == {"kenema": 0, "bo": 0, "makeni": 300}
    assert figures_of(read_facts(folder), "inclusion")["bo"].words == "withdrew"


def test_all_withdrawn_and_the_budget_goes_back(write: Callable[..., Path]) -> None:
    folder = of_partners(write, {}, withdrawn=["kenema", "bo", "makeni"])
    told = statement(read_facts(folder), "inclusion", 12345)
    assert told["back_to_payer_cents"] == 12345
    assert "the whole budget of 123.45 goes back to the payer" in told["words"]


@pytest.mark.parametrize("rule", ["influence", "shapley"])
def test_help_is_paid_and_harm_is_not_charged(write: Callable[..., Path], rule: str) -> None:
    """0.03 and 0.01 of 0.04. bo's 0.01 is within two of its standard errors of 0, which is said."""
    scores = {
        "kenema": {"value": 0.03, "error": 0.01},
        "bo": {"value": 0.01, "error": 0.008},
        "makeni": {"value": -0.5, "error": 0.1},
    }
    folder = of_partners(write, scores, name=rule)
    assert paid(folder, rule, 400) == {"kenema": 300, "bo": 100, "makeni": 0}
    assert statement(read_facts(folder), rule, 400)["notes"] == [
        "Less than two standard errors above 0, so perhaps chance: bo."
    ]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("rounds", "holds no training .*`wardround run STUDY`"),
        ("weights", "holds no training .*`wardround run STUDY`"),
        ("shapley", r"has no measure 'shapley' .*`wardround partners STUDY` with \"shapley\" among the measures"),
        ("influence", r"has no measure 'influence' .*`wardround partners STUDY`"),
    ],
)
def test_what_a_choice_of_partners_does_not_say(write: Callable[..., Path], rule: str, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        paid(of_partners(write, {"bo": {"value": 1.0}}), rule, 100)


@pytest.mark.parametrize("rule", ["rank", "inclusion", "influence", "shapley"])
def test_what_a_training_does_not_say(write: Callable[..., Path], rule: str) -> None:
    with pytest.raises(Refusal, match="`wardround partners STUDY`"):
        paid(write([a_round(1, ["freetown", "bo"])]), rule, 100)


def test_an_unknown_rule_names_the_nearest(write: Callable[..., Path]) -> None:
    with pytest.raises(Refusal, match="did you mean 'shapley'"):
        paid(write([a_round(1, ["bo"])]), "shapely", 100)


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([a_round(1, ["bo"]), a_round(1, ["bo"])], "round 1 is recorded twice"),
        ([a_round(1, ["bo"]), a_round(1, ["bo"], method="local")], "several trainings side by side"),
        ([a_round(1, ["bo"]), a_round(1, ["bo"], repeat=1)], "several trainings side by side"),
        ([a_round(1, ["bo"]), a_round(1, ["bo"], user="bo")], "several trainings side by side"),
        ([a_round(1, [], count=500)], "does not name who took part"),
        ([a_round(1, ["bo"], bytes_up=0)], "no site sent anything"),
        ([], "no site sent anything"),
        ([{"round": 1}], "line 1"),
        ([{**a_round(1, ["bo"]), "round": "first"}], "line 1"),
        ([["no table"]], "line 1"),
    ],
)
def test_records_that_cannot_be_credited(write: Callable[..., Path], rounds: list[Any], words: str) -> None:
    with pytest.raises(Refusal, match=f"(?i){words}"):
        read_facts(write(rounds))


def test_a_name_may_hold_what_looks_like_a_new_line(write: Callable[..., Path]) -> None:
    """JSON allows U+2028 inside a text, and Python's splitlines would cut there."""
    folder = write()
    line = json.dumps(a_round(1, ["freetown", "b\u2028o"]), ensure_ascii=False)
    (folder / "rounds.jsonl").write_text(line + "\n", encoding="utf-8")
    assert paid(folder, "rounds", 100)["b\u2028o"] == 100
    (folder / "rounds.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(Refusal, match="line 1"):
        read_facts(folder)


def test_folders_that_are_none(write: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="not a run folder"):
        read_facts(tmp_path / "nowhere")
    folder = write([a_round(1, ["bo"])])
    (folder / "result.json").unlink()
    with pytest.raises(Refusal, match=r"not finished .*--resume"):
        read_facts(folder)
    for rubbish in ("{", "[]", "\ud800".encode("utf-8", "surrogatepass"), "[" * 100_000):
        (folder / "result.json").write_bytes(rubbish if isinstance(rubbish, bytes) else rubbish.encode())
        with pytest.raises(Refusal, match="cannot be read as JSON"):
            read_facts(folder)


@pytest.mark.parametrize("part", ["verdict", "measures", "sites", "dilution", "asking"])
@pytest.mark.parametrize("value", [None, 7, "text", [1, "a", None], {"a": 1}])
def test_rubbish_in_a_result_never_breaks_the_reader(write: Callable[..., Path], part: str, value: Any) -> None:
    facts = read_facts(write([a_round(1, ["freetown", "bo"])], **{part: value}))
    assert sum(one["cents"] for one in statement(facts, "rounds", 100)["payments"]) == 100


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "0.5", None, {}])
def test_a_score_that_is_no_number_is_no_answer(write: Callable[..., Path], value: Any) -> None:
    folder = of_partners(write, {"kenema": {"value": value}, "bo": {"value": 0.5}}, name="influence")
    assert paid(folder, "influence", 100) == {"kenema": 0, "bo": 100, "makeni": 0}


def test_every_byte_of_a_run_is_in_its_hash(write: Callable[..., Path]) -> None:
    folder = write([a_round(1, ["bo"])])
    before = read_facts(folder)
    assert before.reference == f"triage study:{'5' * 64} run:{before.run_hash}"
    for name in ("rounds.jsonl", "result.json"):
        whole = (folder / name).read_text()
        (folder / name).write_text(whole + " \n" if name == "result.json" else whole.replace("0.1", "0.2"))
        assert read_facts(folder).run_hash != before.run_hash
        (folder / name).write_text(whole)
    assert read_facts(folder).run_hash == before.run_hash
