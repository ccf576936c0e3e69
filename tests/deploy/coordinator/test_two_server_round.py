"""Rounds for two servers over sites' real homes: the model of the simulation, and a bad site that has no part in it."""

import json

import numpy as np
import pytest

from benchmarks.two_servers_deployed import measured
from tests.support.second_server import BAD, SECOND, PairedConsortium
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.trust.transcript.entries import transcript_folder
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay


@pytest.fixture
def consortium(tmp_path):
    return PairedConsortium(tmp_path)


def closed(consortium, study, number):
    path = consortium.second.folder(consortium.run(study).parent.name) / "closed" / f"{number:08d}.json"
    return json.loads(path.read_bytes())


@pytest.mark.parametrize(
    "tables",
    [
        {"aggregator": {"name": "multi_krum", "bad": 1}},
        {"aggregator": {"name": "krum", "bad": 1}},
        {
            "study": {"user": "bo"},
            "algorithm": {"name": "weight_erosion", "p_d": 0.2, "batch_size": 0},
            "aggregator": {"name": "weighted_mean"},
        },
    ],
    ids=["multi_krum", "krum", "weight_erosion"],
)
def test_the_model_is_that_of_the_simulation(consortium, tables):
    study = consortium.study("pair", 3, **tables)
    consortium.conduct(study)
    ours, theirs = consortium.deployed(study), consortium.simulated(study)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=2e-6, rtol=1e-5)
    assert any(np.abs(one).max() > 1e-3 for one in theirs.values())
    if "weight_erosion" not in str(tables):
        assert all(BAD not in closed(consortium, study, number)["chosen"] for number in (1, 2, 3))
    assert SECOND not in {site for one in consortium.rounds(study) for site in one["sites"]}
    # The transcript: every model follows from the opened means, and each site finds its masked answers in it.
    report = replay(read_source(consortium.run(study)))
    assert (report.problem, report.replayed) == ("", 3)
    for site in consortium.names:
        folder = transcript_folder(consortium.homes[site].folder(study_id(study)))
        own = json.loads((folder / "findings.json").read_text())
        assert (own["problems"], own["remarks"], own["found"] >= 3) == ([], [], True)


@pytest.mark.slow
def test_two_servers_over_real_processes(tmp_path):
    """A coordinator, three sites and a second server, each a process of its own over mutual TLS."""
    found = measured(tmp_path, rounds=3, width=8)
    assert (found["sites"], len(found["two_servers_seconds"])) == (3, 2)
