"""Energy at a site: dealt out so that all studies together used what the process did, kept there, and in no answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import in_process
from tests.support import tiny_study as tiny
from wardround.deploy.home import SiteSettings
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.site.clinical.own_report import own_report
from wardround.deploy.site.studies.own_energy import FILE, ProcessorShares, own_energy, read_used

SETTINGS = SiteSettings(name="bo", coordinator="hub:8002", server_name="hub")
SITE = "bo"


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_passes_is_dealt_out_to_the_answers_of_that_moment(tmp_path: Path) -> None:
    clock = Clock()
    shares = ProcessorShares(clock)
    clock.now = 100.0  # nobody's
    with shares.charged_to(tmp_path / "a"):
        clock.now += 2.0  # a's alone
        with shares.charged_to(tmp_path / "b"):
            clock.now += 6.0  # three seconds each
        clock.now += 1.0
    clock.now += 50.0  # nobody's
    assert read_used(tmp_path / "a")["processor_seconds"] == pytest.approx(2 + 3 + 1)
    assert read_used(tmp_path / "b")["processor_seconds"] == pytest.approx(3)


def test_an_answer_that_failed_took_its_time_too(tmp_path: Path) -> None:
    clock = Clock()
    shares = ProcessorShares(clock)

    def fail() -> None:
        clock.now += 4.0
        raise ValueError("of a component")

    with pytest.raises(ValueError, match="of a component"), shares.charged_to(tmp_path):
        fail()
    with shares.charged_to(tmp_path):
        clock.now += 1.0
    assert read_used(tmp_path) == {"answers": 2, "processor_seconds": 5.0, "joules": None}


def test_the_sites_own_factors_count(tmp_path: Path) -> None:
    clock = Clock()
    with ProcessorShares(clock).charged_to(tmp_path):
        clock.now += 240.0
    # 240 s x 15 W = 1 Wh, 0.001 kWh x 480 g; with 30 W and 20 g twice the energy and 0.002 x 20 g.
    plain = own_energy(tmp_path, SETTINGS)
    own = own_energy(tmp_path, SETTINGS.model_copy(update={"watts_per_core": 30.0, "grams_per_kwh": 20.0}))
    assert plain is not None
    assert own is not None
    assert (plain["watt_hours"], plain["grams_co2"]) == (pytest.approx(1), pytest.approx(0.48))
    assert (own["watt_hours"], own["grams_co2"]) == (pytest.approx(2), pytest.approx(0.04))
    assert "estimated from processor time. Of this site's computer alone" in own["words"]
    assert own_energy(tmp_path / "never", SETTINGS) is None


def test_joules_count_where_every_answer_was_measured(tmp_path: Path) -> None:
    readings = iter([7.0, 7200.0, 5.0, 3600.0])  # what passed before an answer begins is nobody's
    shares = ProcessorShares(Clock(), joules=lambda: next(readings))
    for _ in range(2):
        with shares.charged_to(tmp_path):
            pass
    told = own_energy(tmp_path, SETTINGS)
    assert told is not None
    assert told["watt_hours"] == pytest.approx(3)  # 10,800 J
    assert "measured at the processor" in told["words"]
    clock = Clock()
    unmeasured = ProcessorShares(clock)
    unmeasured._joules = None  # as on a system that no longer lets them be read
    with unmeasured.charged_to(tmp_path):
        clock.now += 240.0
    told = own_energy(tmp_path, SETTINGS)
    assert told is not None
    assert told["watt_hours"] == pytest.approx(1)
    assert "estimated" in told["words"]


def test_a_damaged_or_unwritable_file_keeps_no_answer_back(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{broken")
    clock = Clock()
    with ProcessorShares(clock).charged_to(tmp_path):
        clock.now += 1.0
    assert read_used(tmp_path)["processor_seconds"] == 1.0
    (tmp_path / "file").write_text("")
    with ProcessorShares(clock).charged_to(tmp_path / "file"):  # no folder: nothing can be written in it
        clock.now += 1.0


def test_a_study_over_sites_is_metered_where_it_ran_and_nobody_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consortium = in_process.Consortium(tmp_path)
    study = in_process.study_of("metered", 1)
    consortium.conduct(study)
    home, name = consortium.homes[SITE], consortium.id(study)
    used = json.loads((home.folder(name) / FILE).read_text())
    assert used["answers"] > 0
    assert used["processor_seconds"] > 0
    status = tiny.call(capsys, "site", "status", "--home", home.path)
    assert "s of processor time, about" in status.out
    told = own_report(home, read_offer(home, name)).methods[0].meters["energy"]
    assert told["processor_seconds"] == used["processor_seconds"]
    elsewhere: Any = [path for path in consortium.home.path.rglob("*") if path.is_file()]
    assert elsewhere
    assert not [path for path in elsewhere if b"processor_seconds" in path.read_bytes()]
