"""Sections are found: a module in the room is on the page, in its place, and nothing else is edited."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import example_run
from wardround.report.html.markup import Html
from wardround.report.run import section
from wardround.report.run.page import write_report
from wardround.report.run.section import ReportSection, find_sections

CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A further module in the room of sections: the one that CONTRIBUTING shows."""
    room = tmp_path / "room"
    room.mkdir()
    (block,) = re.findall(
        r"```python\n(.*?)```", CONTRIBUTING.read_text().partition("## A section of the report")[2], re.S
    )
    (room / "absences.py").write_text(block)
    monkeypatch.setattr(section.sections, "__path__", [*section.sections.__path__, str(room)])
    find_sections.cache_clear()
    yield section.sections
    find_sections.cache_clear()
    sys.modules.pop("wardround.report.run.sections.absences", None)


def test_names_and_places_are_taken_once() -> None:
    found = find_sections()
    assert len({one.name for one in found}) == len({one.order for one in found}) == len(found)
    assert [one.name for one in found][:3] == ["summary", "limits", "included"]
    assert found[-1].name == "curious"


def test_a_new_module_is_a_section_of_the_page(tmp_path: Path, one_more: ModuleType) -> None:
    files = example_run.example(methods=example_run.METHODS[:1], rounds=3)
    for record, sites in zip(files["rounds"], ((), ("Bo",), ("Bo", "Kenema")), strict=True):
        record["measures"]["absent"] = dict.fromkeys(sites, "it was not there")
    page = write_report(example_run.write(tmp_path / "run", files)).read_text(encoding="utf-8")
    places = [page.index(f'<section id="{name}"') for name in ("progress", "absences", "numbers")]
    assert places == sorted(places)
    assert "3 answers did not come." in page


def test_a_section_without_content_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = ReportSection(1, "nothing", "Nothing", lambda run: [Html("")])
    monkeypatch.setattr("wardround.report.run.page.find_sections", lambda: (empty, *find_sections()))
    page = write_report(example_run.write(tmp_path / "run", example_run.example())).read_text(encoding="utf-8")
    assert 'id="nothing"' not in page
    assert 'id="summary"' in page
