"""A study over sites' real homes gives the model that its simulation gives; who leaves, lies or lags is dealt with."""

import json
import threading
from contextlib import contextmanager

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.in_process import NAMES, Consortium
from tests.support.results import plain
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import ApprovalPending, SitesAwaited
from wardround.deploy.coordinator.queue import known_rows
from wardround.deploy.demo import demo_study
from wardround.deploy.party.decisions import deny, read_offer, withdraw
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.own_model import own_figures
from wardround.runs.folder import RunFolder
from wardround.study.file import parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import run


@pytest.fixture
def consortium(tmp_path):
    return Consortium(tmp_path)


def words(**tables):
    content = demo_study(4).model_dump(mode="json", exclude_none=True)
    for table, values in tables.items():
        content[table] = values if isinstance(values, list) else {**(content.get(table) or {}), **values}
    return parse_study(content, where="test")


def simulated(consortium, study):
    """The same words in simulation, on the same patients in one file."""
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    pd.concat(frames).to_csv(consortium.folder / "patients.csv", index=False)
    data = study.data.model_copy(update={"path": str(consortium.folder / "patients.csv")})
    study = study.model_copy(update={"data": data})
    folder = RunFolder.create(consortium.folder / "simulated", resume=False)
    return plain(run(study, folder, [own_method(study)], kind="run"))


@pytest.mark.parametrize("algorithm", ["fed_avg", "scaffold", "ditto"])
def test_the_model_and_the_figures_are_those_of_the_simulation(consortium, algorithm):
    study = words(algorithm={"name": algorithm, "learning_rate": 0.1})
    deployed, simulation = consortium.conduct(study), simulated(consortium, study)
    ours, theirs = (
        load_file(one / "model.safetensors") for one in (consortium.run(study), consortium.folder / "simulated")
    )
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)
    # What training took is what its rounds took, not what came after them.
    rounds = consortium.rounds(study)
    assert deployed["methods"][0]["seconds"] == pytest.approx(sum(one["seconds"] for one in rounds))
    for site in NAMES:
        found, expected = (one["methods"][0]["scores"]["sites"][site] for one in (deployed, simulation))
        told = {metric: one["value"] for metric, one in found.items() if one["value"] is not None}
        assert "accuracy" in told
        # A site tells its figures on a grid of powers of two, up or down by its own secret.
        assert all((value * 64).is_integer() for value in told.values())
        assert told == pytest.approx({metric: expected[metric]["value"] for metric in told}, abs=1 / 8)
        # The site itself knows exactly.
        own = own_figures(consortium.homes[site].folder(study_id(study)))
        exact = {metric: one["value"] for metric, one in own["figures"].items()}
        assert exact == pytest.approx({metric: one["value"] for metric, one in expected.items()})


def test_nothing_is_computed_or_leaves_twice(consortium):
    study = words()
    consortium.conduct(study)
    model, left = consortium.model(study), [home.audit_path.read_bytes() for home in consortium.homes.values()]
    for name in NAMES:
        consortium.restart(name)
    (consortium.run(study) / "result.json").unlink()
    consortium.conduct(study)
    assert consortium.model(study) == model
    after = [home.audit_path.read_bytes() for home in consortium.homes.values()]
    assert left == after


def test_a_restarted_site_goes_on_with_what_it_kept(consortium):
    study = words(algorithm={"name": "scaffold", "learning_rate": 0.1})
    expected = Consortium(consortium.folder / "other")
    expected.conduct(study)

    def restart_before_round_3(site, topic, header, reply):
        if (site, topic, header["round"]) == ("bo", "round", 2):
            consortium.restart("bo")
        return reply

    consortium.change = restart_before_round_3
    consortium.conduct(study)
    assert consortium.model(study) == expected.model(study)


def test_a_site_that_withdraws_is_left_out_from_then_on(consortium):
    study = words()

    def withdraw_after_round_2(site, topic, header, reply):
        if (site, topic, header["round"]) == ("kenema", "round", 2):
            withdraw(consortium.homes["kenema"], header["study"], by="admin-kenema", why="second thoughts")
        return reply

    consortium.change = withdraw_after_round_2
    consortium.conduct(study)
    rounds = [one for one in consortium.asked if one[1] == "round" and one[0] == "kenema"]
    assert max(number for _, _, number in rounds) <= 3
    records = json.dumps(consortium.rounds(study))
    assert "second thoughts" in records
    assert '"sites": ["bo", "freetown"]' in records


def test_a_site_that_denies_ends_the_study_and_is_named(consortium):
    study = words()
    content = study.model_dump(mode="json")
    HomeAccess(consortium.homes["bo"]).store_offer(study_id(study), content, "researcher")
    deny(consortium.homes["bo"], study_id(study), by="admin-bo", why="not now")
    with pytest.raises(Refusal, match="bo"):
        consortium.conduct(study)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda arrays: {**arrays, "weight": np.float32(np.nan)}, "not finite"),
        (lambda arrays: {**arrays, "extra": np.zeros(3, np.float32)}, "does not have the algorithm's arrays"),
        (lambda arrays: {**arrays, "weight": np.zeros(2, np.float32)}, "shape"),
    ],
)
def test_nonsense_is_left_out_with_its_reason_when_the_quorum_allows(consortium, spoil, reason):
    def lie(site, topic, header, reply):
        if (site, topic) != ("bo", "round"):
            return reply
        said, message = decode(reply)
        return encode(said, Message(spoil(message.arrays)))

    consortium.change = lie
    study = words(deploy={"quorum": 2})
    consortium.conduct(study)
    records = [json.dumps(one) for one in consortium.rounds(study)]
    assert len(records) == 4
    assert all('"sites": ["freetown", "kenema"]' in line and reason in line for line in records)


def test_a_replayed_answer_is_refused(consortium):
    first: dict[str, bytes] = {}

    def replay(site, topic, header, reply):
        if (site, topic) != ("bo", "round"):
            return reply
        return first.setdefault("bo", reply)

    consortium.change = replay
    study = words(deploy={"quorum": 2})
    consortium.conduct(study)
    lines = [json.dumps(one) for one in consortium.rounds(study)]
    assert '"bo"' in lines[0]
    assert all("belongs to another request" in line for line in lines[1:])


def test_too_few_sites_wait_and_go_on_when_they_come_back(consortium):
    consortium.away = {"bo"}
    waited = []

    def observe(event):
        if isinstance(event, ApprovalPending | SitesAwaited):
            waited.append(event.sites)
            consortium.away = set()

    consortium.conduct(words(), observe)
    assert waited[0] == ("bo",)


def test_a_column_that_a_site_lacks_is_named_before_the_first_round(consortium):
    table = pd.read_csv(consortium.tables["bo"])
    table.drop(columns="vomiting").to_csv(consortium.tables["bo"], index=False)
    with pytest.raises(Refusal, match=r"'vomiting' is missing.*bo"):
        consortium.conduct(words())
    assert not any(topic == "round" for _, topic, _ in consortium.asked)


def test_each_site_is_told_how_many_patients_the_others_had_before(consortium):
    """Beside freetown's, 40 + 70; kenema cannot be told, since nothing is known of freetown's in the second study."""
    study = words()
    consortium.conduct(study, known_rows={"bo": 40, "freetown": 999, "kenema": 70})
    assert read_offer(consortium.homes["freetown"], study_id(study)).others == 110
    assert read_offer(consortium.homes["bo"], study_id(study)).others == 1069
    second = words(study={"name": "second"})
    consortium.conduct(second, known_rows={"bo": 40, "kenema": 70})
    assert read_offer(consortium.homes["freetown"], study_id(second)).others == 110
    assert read_offer(consortium.homes["kenema"], study_id(second)).others is None


def test_sizes_are_those_that_the_sites_told_last(consortium):
    assert known_rows(consortium.home) == {}
    consortium.conduct(words())
    told = known_rows(consortium.home)
    assert sorted(told) == sorted(NAMES)
    rows = {name: len(pd.read_csv(path)) for name, path in consortium.tables.items()}
    share = words().data.shares[0]
    # Rounded down to whole cells.
    assert all(told[name] % 10 == 0 for name in NAMES)
    assert all(-2 <= rows[name] * share - told[name] <= 11 for name in NAMES)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"deploy": {"quorum": 4}}, "4 sites must answer"),
        ({"algorithm": {"name": "centralized"}}, "pools all rows in one place"),
        ({"algorithm": {"name": "fed_avg", "momentum_of_nothing": 1}}, "momentum_of_nothing"),
        ({"aggregator": {"name": "median"}, "transforms": [{"name": "secure_sum"}]}, "must see each of them"),
        ({"data": {"partition": {"name": "iid"}}}, "nothing to partition"),
        ({"privacy": {"epsilon": 3.0, "seeded": True}}, "seeded"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_anything_is_offered_or_compiled(consortium, tables, reason):
    with compilations() as compiled:
        with pytest.raises(Refusal, match=reason):
            consortium.conduct(words(**tables))
        assert consortium.asked == []
        assert compiled == []
        jax.jit(lambda x: x * 3 + len(compiled))(np.float32(1))
        assert compiled, "nothing was listened to"


@contextmanager
def compilations():
    """What this thread compiles; a site of an earlier test may still be at work in a thread of its own."""
    compiled, here = [], threading.get_ident()

    def hear(event, *_, **__):
        if "backend_compile" in event and threading.get_ident() == here:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)


def test_a_secure_sum_without_a_site_s_certificate_is_refused_by_name(consortium):
    consortium.home.site_certificate("bo").unlink()
    with pytest.raises(Refusal, match=r"missing: bo.*coordinator sign"):
        consortium.conduct(words(transforms=[{"name": "secure_sum"}]))
    assert consortium.asked == []
