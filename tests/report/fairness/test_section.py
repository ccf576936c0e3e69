"""The report on groups says in words what the numbers say, hides nothing undefined, and lets no name break the page."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import example_run as example
from tests.support.results import parsed
from wardround.report.fairness.poster import Grid, poster_summary, read_grid, repeat_mean
from wardround.report.fairness.poster import poster_section as poster
from wardround.report.fairness.section import fairness_of, fairness_section
from wardround.report.run.page import report_page
from wardround.runs.result import CasesResult

TASK = parsed({"task": {"target": "income", "positive": "high"}}).task


def figure(value: float, half: float = 0.02) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def group(recall: dict[str, Any], rows: int = 100) -> dict[str, Any]:
    return {"rows": rows, "recall": recall, "selection_rate": figure(0.2), "false_positive_rate": figure(0.1)}


def block(women: float = 0.55, men: float = 0.71, half: float = 0.02, **more: Any) -> dict[str, Any]:
    column = {
        "groups": {"women": group(figure(women, half)), "men": group(figure(men, half), 240)},
        "withheld": [],
        "equal_opportunity_gap": figure(abs(men - women)),
        "equal_odds_gap": figure(0.31),
        "differential_fairness": figure(0.47),
        "differential_fairness_unsmoothed": {"value": None, "undefined": "infinite: never for another"},
    }
    return {
        "smallest": 10,
        "generalized_entropy_index": figure(0.081),
        "columns": {"sex": {**column, **more}},
        "repeats": [],
    }


def result(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"methods": [{"name": f"m{n}", "label": f"Model {n}", "fairness": one} for n, one in enumerate(blocks)]}


def page(*blocks: dict[str, Any]) -> str:
    return str(fairness_section(fairness_of(parsed(result(*blocks)).methods), TASK))


def test_the_shares_found_are_told_in_words() -> None:
    text = page(block())
    assert "Share of patients with income high that the model finds: women 55 %, men 71 %." in text
    assert "do not overlap: the difference is larger than chance" in text
    assert "Model 0 0.081" in text
    for number in ("0.310", "0.470", "0.160"):
        assert number in text
    assert "not defined: infinite: never for another" in text


def test_the_group_worst_served_comes_first_and_chance_is_not_called_a_difference() -> None:
    text = page(block(women=0.60, men=0.58, half=0.05))
    assert "finds: men 58 %, women 60 %." in text
    assert "overlap, so no difference between them is shown" in text
    assert "larger than chance" not in text


def test_several_models_are_named() -> None:
    text = page(block(), block(women=0.2))
    assert "“Model 0” finds: women 55 %" in text
    assert "“Model 1” finds: women 20 %" in text


def test_who_is_withheld_or_left_out_is_said() -> None:
    groups = {"a": group(figure(0.5)), "b": group(figure(0.6)), "c": group({"value": None, "undefined": "too few"})}
    gap = {**figure(0.1), "left_out": ["c"]}
    text = page(block(groups=groups, withheld=["d", "e"], equal_opportunity_gap=gap))
    assert "Withheld because of fewer than 10 test patients: d, e." in text
    assert "because too few patients have the outcome: c." in text
    assert "finds: a 50 %, b 60 %." in text
    assert "not defined: too few" in text


def test_of_many_groups_the_two_ends_are_spoken() -> None:
    text = page(block(groups={f"g{n}": group(figure(0.3 + n / 20)) for n in range(7)}))
    assert "finds: g0 30 %, g6 60 %. These are the two ends of 7 groups." in text


def test_without_groups_there_is_no_section() -> None:
    assert page() == ""
    assert str(fairness_section(fairness_of(parsed({"methods": [{"name": "m"}, 3, None]}).methods), TASK)) == ""


def test_the_page_of_a_run_has_the_section_and_survives_names_that_attack_it(tmp_path: Path) -> None:
    files = example.example(rounds=2)
    nasty = {name: group(figure(0.3 + n / 20)) for n, name in enumerate(example.NASTY)}
    files["result"]["methods"][0]["fairness"] = block(groups=nasty, withheld=list(example.NASTY))
    example.write(tmp_path, files)
    text = str(report_page(tmp_path))
    assert 'id="fairness-title"' in text
    part = text[text.index('<section id="fairness"') :]
    part = part[: part.index("</section>")]
    assert "<script>fired" not in part
    assert "<img" not in part
    assert "&lt;script&gt;fired" in part


# ---- over many settings ----


def one_repeat(rng: np.random.Generator, score: float, *, odd: bool) -> dict[str, float | None]:
    """The figures of a repeat; in an odd one a measure is undefined."""

    def around(mean: float) -> float | None:
        return mean + 0.01 * float(rng.normal())

    scores = {name: around(score) for name in ("f1", "roc_auc", "recall", "precision")}
    recalls = {f"sex/recall/{sex}": around(0.8) for sex in ("f", "m")}
    return {**scores, **recalls, "sex/equal_odds_gap": None if odd else around(0.1)}


def write_cases(folder: Path, effect: float = 0.1, partitions: tuple[str, ...] = ("iid", "by_class")) -> CasesResult:
    """Cases of two partitions at three levels, six repeats each, in which every step of privacy costs the effect."""
    rng = np.random.default_rng(0)
    cases = []
    for partition in partitions:
        for step, epsilon in enumerate((None, 1.0, 0.1)):
            name = f"{partition}_{epsilon}"
            repeats = [one_repeat(rng, 0.9 - effect * step, odd=step == 2 and not repeat) for repeat in range(6)]
            own = {**block(groups={"f": group(figure(0.8), 30), "m": group(figure(0.8), 70)}), "repeats": repeats}
            meters = {"privacy": {"sample_epsilon": epsilon}}
            place = folder / "cases" / name
            place.mkdir(parents=True)
            content = {
                "methods": [{"name": "global", "label": "Common", "fairness": own, "meters": meters}],
                "sites": [{"name": "a", "train": 70, "validation": 0, "test": 30}],
            }
            study = {
                "data": {"partition": {"name": partition, "degree": 0.8}},
                "privacy": epsilon and {"epsilon": epsilon},
            }
            (place / "result.json").write_text(json.dumps(content), encoding="utf-8")
            (place / "manifest.json").write_text(json.dumps({"study": study}), encoding="utf-8")
            cases.append({"name": name, "folder": f"cases/{name}"})
    return parsed({"kind": "cases", "against": "global", "cases": cases})


def test_cases_become_a_grid_by_partition_and_level(tmp_path: Path) -> None:
    grid = read_grid(tmp_path, write_cases(tmp_path))
    assert grid.levels == [None, 1.0, 0.1]
    assert grid.partitions == {"iid": "divided at random (0.8)", "by_class": "class imbalance (0.8)"}
    assert grid.columns == {"sex": "m"}
    arms = grid.arms()
    assert arms is not None
    assert list(arms.levels) == ["none", "1", "0.1"]
    cell = grid.at("iid", 0.1)
    assert cell is not None
    assert (cell.test_share, cell.spent) == (0.3, 0.1)
    values = [one["f1"] for one in cell.repeats if one["f1"] is not None]
    shown = repeat_mean(cell, "f1")
    assert shown.value == pytest.approx(np.mean(values))
    # Nadeau and Bengio: the variance of the mean is (1/6 + 0.3/0.7) times that of a repeat; t(5) reaches 2.5706.
    reach = 2.5706 * np.std(values, ddof=1) * np.sqrt(1 / 6 + 3 / 7)
    assert (shown.high or 0) - (shown.value or 0) == pytest.approx(reach, rel=1e-4)


def test_the_section_gives_each_claim_its_verdict_and_the_numbers_behind_it(tmp_path: Path) -> None:
    result = write_cases(tmp_path)
    text = str(poster(tmp_path, result))

    def answer(claim: str) -> str:
        return text[text.index(f'<th scope="row">{claim}') :].partition("</tr>")[0]

    worse = answer("Performance drops with increasing privacy.")
    assert "<strong>Borne out</strong>" in worse
    assert "4 of 4 tests for it, none against it" in worse
    # Both partitions begin at 0.9 and lose 0.1 with each of two steps, up to a noise of 0.01 / sqrt(12).
    shown = re.search(r"F1 over all patients: ([\d.]+) → ([\d.]+)", worse)
    assert shown is not None
    assert [float(part) for part in shown.groups()] == pytest.approx([0.9, 0.7], abs=0.012)
    assert "<strong>Cannot be told from these data</strong>" in answer("The impact of privacy is more prominent")
    assert "undefined in 1 of 6" in text
    assert "class imbalance (0.8), epsilon 0.1 (spent 0.1)" in text
    assert text.count('class="chart"') == 10  # nine measures (5, 1, 3), and the recall of one column's groups
    # "none" is counted from the same verdicts that the table shows.
    told_short = poster_summary(tmp_path, result)
    for verdict, words in (("Borne out", "bear out {}"), ("Contradicted", "contradict {}")):
        assert words.format(text.count(f"<strong>{verdict}</strong>") or "none") in told_short


def test_no_verdict_where_a_setting_is_missing(tmp_path: Path) -> None:
    told_of = write_cases(tmp_path)
    (tmp_path / "cases" / "by_class_0.1" / "result.json").unlink()
    text = str(poster(tmp_path, told_of))
    assert "no claim is tested yet" in text
    assert "Borne out" not in text
    assert "not defined: not run" in text


def test_cases_without_privacy_or_without_groups_have_no_section(tmp_path: Path) -> None:
    assert read_grid(tmp_path, parsed({"cases": [{"folder": "nowhere"}]}, "cases")) == Grid(())
    assert str(poster(tmp_path, parsed({"cases": []}, "cases"))) == ""
