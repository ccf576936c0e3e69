"""Who took part, from records as a deployed study writes them."""

import json

import pytest

from wardround.report.run.page import report_page
from wardround.report.run.participation import spans
from wardround.runs.courses import read_courses


def record(number, sites, absent=None):
    measures = {"absent": absent} if absent else {}
    return {"method": "global", "repeat": 0, "round": number, "sites": sites, "measures": measures}


RECORDS = [
    record(1, ["bo", "kenema"]),
    record(2, ["bo"], {"kenema": "it was not connected"}),
    record(3, ["bo"], {"kenema": "it was not connected"}),
    record(4, ["bo"], {"kenema": "late: <b>slow</b>"}),
    record(5, ["bo", "kenema"]),
]


def written(folder, kind):
    (folder / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    (folder / "manifest.json").write_text("{}")
    (folder / "result.json").write_text(json.dumps({"study": "s", "kind": kind, "methods": []}))
    return str(report_page(folder))


def test_rounds_and_reasons_of_each_hospital(tmp_path):
    page = written(tmp_path, "deployed")
    assert "In 3 of 5 rounds a hospital was missing" in page
    assert '<tr><th scope="row">bo</th><td>5 of 5</td><td>none</td></tr>' in page
    assert "<td>2 of 5</td>" in page
    assert "rounds 2 to 3: it was not connected<br>round 4: late: &lt;b&gt;slow&lt;/b&gt;" in page


def test_a_simulation_says_nothing_of_it(tmp_path):
    assert "Who took part" not in written(tmp_path, "run")


def test_records_that_make_no_sense_are_no_trouble():
    (course,) = read_courses([{"round": 1, "sites": "bo", "measures": {"absent": 7}}])
    assert course.missing == ({},)


@pytest.mark.parametrize(("rounds", "words"), [([3], "round 3"), ([9, 2, 4, 3], "rounds 2 to 4, 9")])
def test_spans(rounds, words):
    assert spans(rounds) == words
