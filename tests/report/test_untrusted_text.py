"""Names that attack the page stay text: as HTML, in charts, in any spelling, and in a real browser."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import example_partners as asked
from tests.support import example_run as run
from tests.support.example_clinical import add_clinical
from wardround.report.run.page import write_report

# Tests are no package, so that what they share is loaded by its path.

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for entry in inside for text in strings(entry)]


def about_partners(tmp_path: Path) -> Path:
    """The page about partners with an attack in every name and every sentence."""
    return write_report(run.write(tmp_path, {"result": asked.poisoned(run.NASTY)}))


def with_told_names(tmp_path: Path) -> Path:
    """A run in which the algorithm tells of hospitals, and of numbers, whose names are attacks."""
    files = run.poisoned()
    files["manifest"]["study"]["study"]["user"] = run.NASTY[1]
    for record in files["rounds"]:
        told = {name: dict.fromkeys(run.NASTY, 0.4) for name in ("alpha", "distance", run.NASTY[0])}
        record["measures"]["told"] = told | {"cluster": dict.fromkeys(run.NASTY, 2), "stopped": True, "skipped": 1}
    zero = files["rounds"][0] | {"round": 0, "measures": {"told": {"score": dict.fromkeys(run.NASTY, 0.1)}}}
    zero["measures"]["told"]["chosen"] = list(run.NASTY[2:4])
    files["rounds"].insert(0, zero)
    return write_report(run.write(tmp_path, files))


def with_clinical_figures(tmp_path: Path) -> Path:
    """A run whose columns, levels and reasons are attacks, in every clinical section."""
    files = add_clinical(run.poisoned(), run.NASTY[0], run.NASTY[1])
    for method in files["result"]["methods"]:
        method["clinical"]["operating_point"]["fallback"] = run.NASTY[3]
        method["scores"]["groups"] = {bad: {bad: {"rows": 9, "roc_auc": {"value": 0.5}}} for bad in run.NASTY}
    files["result"]["methods"][0]["clinical"]["importance"] = {"kind": run.NASTY[4], "rows": 1, "reason": run.NASTY[5]}
    return write_report(run.write(tmp_path, files))


@pytest.mark.parametrize("made", [about_partners, with_told_names, with_clinical_figures])
def test_nasty_names_stay_text(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    page = run.Page(made(tmp_path))
    for name in run.NASTY:
        assert name in page.text
    assert {tag for tag, _ in page.tags}.isdisjoint({"img", "b", "iframe", "object"})
    sections = {a["id"] for tag, a in page.tags if tag == "section"}
    assert {(a.get("href") or "")[1:] for tag, a in page.tags if tag == "a"} <= sections, "links lead to sections only"
    # Labels of charts understand some HTML of their own: only our line breaks and bold names may be in them.
    for words in strings(page.data):
        assert "<" not in re.sub(r"</?b>|<br>", "", words)
        assert words.count("<b>") <= 1
    scripts = [a for t, a in page.tags if t == "script"]
    assert sum("type" not in a for a in scripts) == 2  # Plotly and the drawing, nobody else's


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(min_size=1, max_size=40) | st.text(alphabet="<>&\"'/!-script{}%\\\u2028\u202e\ud800", max_size=30))
def test_any_name_gives_a_page_of_the_same_shape(tmp_path: Path, name: str) -> None:
    files = run.example(hospitals=(name, "Other"), methods=run.METHODS[:1], rounds=2, metrics=("accuracy",))
    page = run.Page(write_report(run.write(tmp_path, files)))
    usual = run.Page(
        write_report(run.write(tmp_path, run.example(("Usual", "Other"), run.METHODS[:1], ("accuracy",), 2)))
    )
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in usual.tags]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_in_a_real_browser_charts_appear_and_attacks_do_not_run(tmp_path: Path) -> None:
    path = write_report(run.write(tmp_path, run.poisoned()))
    text = path.read_text(encoding="utf-8")
    # The watcher stands where the policy stood: without the policy the escaping alone has to hold. What the page
    # would have loaded or run leaves a mark on the document, and the mark is in the DOM that Chromium prints.
    watcher = (
        "<script>function fired(what){document.documentElement.setAttribute('data-fired',what)}"
        "window.onerror=function(what){document.documentElement.setAttribute('data-error',what)}</script>"
    )
    bare, replaced = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', watcher, text)
    assert replaced == 1
    # An attack of our own, unescaped, shows that the watcher would see one.
    control = "<main><img src=x onerror=\"document.documentElement.setAttribute('data-control','')\">"
    seen = browsed(tmp_path, "bare.html", bare.replace("<main>", control))
    assert re.search(r"<html[^>]* data-control", seen)
    assert "data-fired" not in seen.replace("data-fired',what", "")
    assert "data-error" not in seen.replace("data-error',what", "")
    charts = seen.count('class="main-svg"')
    assert charts >= 2 * text.count('class="chart"')  # Plotly draws a lower and an upper layer a chart
    # Names are drawn as they are, not as the markup they look like.
    assert re.search(r"<text[^>]*>[^<]*&lt;script&gt;fired\(", seen)
    # The page about partners goes the same way.
    partners = about_partners(tmp_path / "partners").read_text(encoding="utf-8")
    bare, replaced = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', watcher, partners)
    assert replaced == 1
    seen = browsed(tmp_path, "partners.html", bare)
    assert "data-fired" not in seen.replace("data-fired',what", "")
    assert "data-error" not in seen.replace("data-error',what", "")
    assert seen.count('class="main-svg"') >= 2 * partners.count('class="chart"')
    with_policy = browsed(tmp_path, "report.html", text)
    assert with_policy.count('class="main-svg"') == charts


def browsed(folder: Path, name: str, text: str) -> str:
    """The document after Chromium has run it, as HTML."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    flags: tuple[str, ...] = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    )
    flags += (
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--disable-dev-shm-usage",
    )
    flags += ("--virtual-time-budget=1000", "--dump-dom")
    done = subprocess.run(
        [str(CHROMIUM), *flags, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split("<footer>")[0]
