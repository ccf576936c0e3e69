"""The table for the terminal, as it is printed."""

import io
from typing import Any

from rich.console import Console

from tests.support.results import parsed
from wardround.report.terminal import partners_table, summary_table


def result() -> dict[str, Any]:
    def method(name: str, label: str, values: dict[str, Any]) -> dict[str, Any]:
        sites = {site: {"roc_auc": entry} for site, entry in values.items()}
        return {"name": name, "label": label, "scores": {"sites": sites, "weighted": {"roc_auc": {"value": 0.75}}}}

    return {
        "study": "triage",
        "metric": "roc_auc",
        "sites": [{"name": "Bo"}, {"name": "[red]Kenema[/red]"}],
        "methods": [
            method(
                "local",
                "Own model",
                {"Bo": {"value": 0.7, "low": 0.61, "high": 0.79}, "[red]Kenema[/red]": {"value": 0.8}},
            ),
            method(
                "fed_avg",
                "Common model",
                {"Bo": {"value": 0.9}, "[red]Kenema[/red]": {"value": None, "undefined": "only one class"}},
            ),
        ],
    }


def printed(result: dict[str, Any], *, colour: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=120, force_terminal=colour, color_system="standard" if colour else None).print(
        summary_table(parsed(result))
    )
    return out.getvalue()


def test_a_hospital_a_row_and_a_method_a_column() -> None:
    lines = printed(result()).splitlines()
    assert lines[0].strip() == "triage: ROC-AUC, higher is better"
    row = next(line for line in lines if "Bo" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["Bo", "0.700 (0.610 to 0.790)", "0.900"]
    total = next(line for line in lines if "all, by patients" in line)
    assert total.count("0.750") == 2


def test_names_are_no_styles_and_the_undefined_is_said() -> None:
    row = next(line for line in printed(result()).splitlines() if "Kenema" in line)
    assert "[red]Kenema[/red]" in row
    assert "not defined: only one class" in row


def test_the_best_is_bold_and_its_rival_is_not() -> None:
    text = printed(result(), colour=True)
    assert "\x1b[1m0.900" in text
    assert "\x1b[1m0.700" not in text


def test_many_hospitals_become_percentiles() -> None:
    many = result()
    many["sites"] = [{"name": f"ward-{i}"} for i in range(1000)]
    many["methods"][0]["scores"]["percentiles"] = {"roc_auc": {"10": 0.6, "50": 0.7, "90": 0.8}}
    text = printed(many)
    assert "median over hospitals" in text
    assert "ward-1" not in text
    assert "0.600" in text


def test_an_empty_result_gives_an_empty_table() -> None:
    assert "hospital" in printed({})


def asked(width: int = 110, **changes: Any) -> str:
    answer: dict[str, Any] = {
        "kind": "partners",
        "asking": "Freetown",
        "sites": [{"name": name} for name in ("Freetown", "[red]Kenema[/red]", "Makeni", "Bo")],
        "verdict": {
            "helps": "yes",
            "partners": ["[red]Kenema[/red]"],
            "others": ["Makeni"],
            "unanswered": ["Bo"],
            "headline": "Train with [red]Kenema[/red], not with Makeni.",
            "gain": {"words": "It helps."},
        },
        "measures": [
            {
                "name": "ndoye",
                "cut": -0.08,
                "scores": {
                    "Makeni": {"value": -0.287, "error": None},
                    "[red]Kenema[/red]": {"value": -0.01, "error": 0.02},
                },
            }
        ],
        "pairs": [
            {
                "site": "Makeni",
                "features": [
                    {"feature": "age", "distance": 0.1, "words": "Younger.", "beyond_chance": True},
                    {"feature": "malaria", "distance": 0.4, "words": "More malaria.", "beyond_chance": True},
                    {"feature": "sex", "distance": 0.9, "words": "By chance.", "beyond_chance": False},
                ],
            }
        ],
    }
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(partners_table(parsed(answer | changes)))
    return out.getvalue()


def test_partners_are_told_with_verdict_score_and_main_difference() -> None:
    lines = asked().splitlines()
    assert lines[0].strip() == "Train with [red]Kenema[/red], not with Makeni."
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert rows == [
        ["[red]Kenema[/red]", "partner", "−0.010 ± 0.020", ""],
        ["Makeni", "not taken", "−0.287", "More malaria."],
        ["Bo", "did not answer", "none", ""],
    ]
    assert lines[-1].strip() == "It helps."


def test_of_many_partners_the_best_are_shown() -> None:
    scores = {f"ward-{number}": {"value": -number} for number in range(50)}
    text = asked(sites=[], verdict={}, measures=[{"scores": scores}])
    assert "ward-19" in text
    assert "ward-20" not in text
    assert "and 30 more" in text


def test_an_empty_answer_about_partners_is_no_error() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(partners_table(parsed({}, "partners")))
    assert "There is no answer yet." in out.getvalue()
