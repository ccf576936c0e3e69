"""Whoever dies at whichever point: started again, the same run goes on in the same round and ends with the same bits.

The same with real processes over mutual TLS is `soak.py sweep`, of which test_real_processes.py does a part.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support import in_process
from wardround.deploy.fault_points import CHARGED, PAIRED, PARTIAL, PASSED, POINTS, SUMMED
from wardround.deploy.trust.audit_log import verify

ONLY_REAL = {"coordinator.study.ended", "coordinator.state.partial"}
"""In the coordinator's process, around what is conducted here."""
TIMES = {
    "site.request.received": 13,
    "site.kept.saved": 2,
    "site.reply.before_save": 30,
    "site.reply.saved": 3,
    "site.audit.written": 37,
    "site.reply.ready": 4,
    "site.reply.partial": 29,
    "site.model.partial": 2,
    "coordinator.round.one_answered": 43,
    "coordinator.round.before_asking": 3,
    "coordinator.round.recorded": 2,
    "coordinator.checkpoint.partial": 2,
    "coordinator.checkpoint.saved": 3,
}
"""At which passing; the others at the first. A study of three rounds asks its three sites for about 60 answers."""
CASES = [(point, TIMES.get(point, 1)) for point in POINTS if point not in ONLY_REAL]


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def reference(consortium: Any) -> Any:
    study = in_process.study_of("undisturbed", algorithm=in_process.KEPT)
    consortium.conduct(study)
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]
    return study


@pytest.mark.parametrize(("point", "count"), CASES)
def test_a_death_costs_nothing(
    consortium: Any, reference: Any, point: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = in_process.study_of(f"{point}-{count}", algorithm=in_process.KEPT)
    before = len(consortium.deaths)
    with monkeypatch.context() as armed:
        in_process.die_at(armed, point, count)
        consortium.until_done(study)
    died = consortium.deaths[before:]
    assert len(died) == 1
    assert (died[0] == "coordinator") == point.startswith("coordinator.")
    assert consortium.model(study) == consortium.model(reference)
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]
    for name in consortium.names:
        left, expected = consortium.left(name, study), consortium.left(name, reference)
        hashes = [one["sha256"] for one in left]
        assert len(set(hashes)) == len(hashes)
        # The same questions were answered, each once.
        assert [(one["topic"], one["round"]) for one in left] == [(one["topic"], one["round"]) for one in expected]
        assert verify(consortium.homes[name].audit_path) == []


def test_every_point_of_the_code_is_listed_and_every_listed_one_is_in_the_code() -> None:
    """Else the sweep would miss one, or wait for one that nobody passes."""
    room = Path(__file__).resolve().parents[2] / "wardround" / "deploy"
    text = "".join(path.read_text() for path in room.rglob("*.py") if path.name != "fault_points.py")
    found = {piece.split('"')[0] for piece in text.split('point("')[1:]}
    assert found == {*PASSED, *SUMMED, *PAIRED, *CHARGED}
    assert not set(PASSED) & set(PARTIAL)


def test_deaths_of_both_sides_in_one_run(consortium: Any, reference: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator dies in every round before its checkpoint, and a site with every fifth answer."""
    study = in_process.study_of("unlucky", algorithm=in_process.KEPT)
    passed = {"coordinator.round.recorded": 0, "site.audit.written": 0}

    def point(name: str) -> None:
        if name in passed:
            passed[name] += 1
            if passed[name] % (2 if name.startswith("coordinator") else 5) == 1:
                raise in_process.Died

    with monkeypatch.context() as armed:
        for module in in_process.POINTED:
            armed.setattr(module, "point", point)
        consortium.until_done(study)
    assert consortium.deaths.count("coordinator") >= 3
    assert consortium.model(study) == consortium.model(reference)
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]
