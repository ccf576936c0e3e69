"""A study over sites' real homes gives the model that its simulation gives; who leaves, lies or lags is dealt with."""

import json
import threading

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.results import plain
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.run_study import conduct, study_id
from wardround.deploy.coordinator.service import known_sizes
from wardround.deploy.demo import demo_study, make_coordinator, make_site, patients
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.approvals import approve, deny, read_offer, withdraw
from wardround.deploy.site.authorization import SiteOffice
from wardround.deploy.site.own_figures import own_figures
from wardround.deploy.site.request_handler import Clerk
from wardround.runs.folder import RunFolder
from wardround.study.file import parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import run

NAMES = ("bo", "freetown", "kenema")


class Consortium:
    """Three sites with homes of their own; requests go to their clerks without a network in between."""

    def __init__(self, folder):
        self.folder = folder
        coordinator = make_coordinator(folder / "coordinator", 1)
        self.tables = patients(folder, NAMES)
        self.homes = {name: make_site(folder / name, name, coordinator, self.tables[name]) for name in NAMES}
        self.clerks = {name: Clerk(SiteOffice(home)) for name, home in self.homes.items()}
        self.away: set[str] = set()
        self.asked: list[tuple[str, str, int]] = []
        self.change = lambda site, topic, header, reply: reply

    def restart(self, name):
        self.clerks[name] = Clerk(SiteOffice(self.homes[name]))

    def ask(self, site, topic, body, _):
        header, _ = decode(body)
        self.asked.append((site, topic, header["round"]))
        if topic == "offer" and self.clerks[site].office.state(header["study"])[0] == "waiting":
            self.clerks[site].answer(topic, "server", body)
            approve(self.homes[site], header["study"], by=f"admin-{site}")
        return self.change(site, topic, header, self.clerks[site].answer(topic, "server", body))

    def conduct(self, study, name="run", **more):
        path = self.folder / name
        folder = RunFolder.create(path, resume=(path / "manifest.json").exists())
        present = lambda: frozenset(NAMES) - self.away  # noqa: E731 - one line
        return plain(conduct(study, folder, NAMES, self.ask, present=present, submitter="researcher", **more))

    def model(self, name="run"):
        return load_file(self.folder / name / "model.safetensors")


@pytest.fixture
def consortium(tmp_path):
    return Consortium(tmp_path)


def words(**tables):
    content = demo_study(4).model_dump(mode="json", exclude_none=True)
    for table, values in tables.items():
        content[table] = {**(content.get(table) or {}), **values}
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
    ours, theirs = consortium.model(), consortium.model("simulated")
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)
    # What training took is what its rounds took, not what came after them.
    rounds = [json.loads(line) for line in (consortium.folder / "run" / "rounds.jsonl").read_text().splitlines()]
    assert deployed["methods"][0]["seconds"] == pytest.approx(sum(one["seconds"] for one in rounds))
    for site in NAMES:
        found, expected = (one["methods"][0]["scores"]["sites"][site] for one in (deployed, simulation))
        told = {metric: one["value"] for metric, one in found.items() if one["value"] is not None}
        assert "accuracy" in told
        # A site tells its figures on a grid of powers of two, on which a patient makes at most half a step.
        assert all((value * 64).is_integer() for value in told.values())
        assert told == pytest.approx({metric: expected[metric]["value"] for metric in told}, abs=1 / 16)
        # The site itself knows exactly.
        own = own_figures(consortium.homes[site].folder(study_id(study)))
        exact = {metric: one["value"] for metric, one in own["figures"].items()}
        assert exact == pytest.approx({metric: one["value"] for metric, one in expected.items()})


def test_nothing_is_computed_or_leaves_twice(consortium):
    study = words()
    consortium.conduct(study)
    model, left = consortium.model(), [home.audit_path.read_bytes() for home in consortium.homes.values()]
    for name in NAMES:
        consortium.restart(name)
    (consortium.folder / "run" / "result.json").unlink()
    consortium.conduct(study)
    assert all(np.array_equal(consortium.model()[name], model[name]) for name in model)
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
    assert all(np.array_equal(consortium.model()[name], array) for name, array in expected.model().items())


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
    records = (consortium.folder / "run" / "rounds.jsonl").read_text()
    assert "second thoughts" in records
    assert '"sites": ["bo", "freetown"]' in records


def test_a_site_that_denies_ends_the_study_and_is_named(consortium):
    study = words()
    offer = encode({"protocol": 1, "wardround": "", "study": study_id(study)})
    assert offer
    content = study.model_dump(mode="json")
    SiteOffice(consortium.homes["bo"]).offered(study_id(study), content, "researcher")
    deny(consortium.homes["bo"], study_id(study), by="admin-bo", why="not now")
    with pytest.raises(Refusal, match="bo"):
        consortium.conduct(study)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda arrays: {**arrays, "weight": np.float32(np.nan)}, "not finite"),
        (lambda arrays: {**arrays, "extra": np.zeros(3, np.float32)}, "other arrays"),
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
    consortium.conduct(words(deploy={"quorum": 2}))
    records = (consortium.folder / "run" / "rounds.jsonl").read_text().splitlines()
    assert len(records) == 4
    assert all('"sites": ["freetown", "kenema"]' in line and reason in line for line in records)


def test_a_replayed_answer_is_refused(consortium):
    first: dict[str, bytes] = {}

    def replay(site, topic, header, reply):
        if (site, topic) != ("bo", "round"):
            return reply
        return first.setdefault("bo", reply)

    consortium.change = replay
    consortium.conduct(words(deploy={"quorum": 2}))
    lines = (consortium.folder / "run" / "rounds.jsonl").read_text().splitlines()
    assert '"bo"' in lines[0]
    assert all("belongs to another request" in line for line in lines[1:])


def test_too_few_sites_wait_and_go_on_when_they_come_back(consortium):
    consortium.away = {"bo"}
    waited = threading.Event()

    def told(word, facts):
        if word in ("waiting", "approval"):
            waited.set()
            consortium.away = set()

    consortium.conduct(words(), told=told)
    assert waited.is_set()


def test_a_column_that_a_site_lacks_is_named_before_the_first_round(consortium):
    table = pd.read_csv(consortium.tables["bo"])
    table.drop(columns="vomiting").to_csv(consortium.tables["bo"], index=False)
    with pytest.raises(Refusal, match=r"'vomiting' is missing.*bo"):
        consortium.conduct(words())
    assert not any(topic == "round" for _, topic, _ in consortium.asked)


def test_each_site_is_told_how_many_patients_the_others_had_before(consortium):
    """Beside freetown's, 40 + 70; kenema cannot be told, since nothing is known of freetown's in the second study."""
    study = words()
    consortium.conduct(study, sizes={"bo": 40, "freetown": 999, "kenema": 70})
    assert read_offer(consortium.homes["freetown"], study_id(study)).others == 110
    assert read_offer(consortium.homes["bo"], study_id(study)).others == 1069
    second = words(study={"name": "second"})
    consortium.conduct(second, name="second", sizes={"bo": 40, "kenema": 70})
    assert read_offer(consortium.homes["freetown"], study_id(second)).others == 110
    assert read_offer(consortium.homes["kenema"], study_id(second)).others is None


def test_sizes_are_those_that_the_sites_told_last(consortium):
    home = CoordinatorHome(consortium.folder / "coordinator")
    assert known_sizes(home) == {}
    consortium.conduct(words(), name="coordinator/studies/first-1/run")
    told = known_sizes(home)
    assert sorted(told) == sorted(NAMES)
    rows = {name: len(pd.read_csv(path)) for name, path in consortium.tables.items()}
    share = words().data.shares[0]
    # Rounded down to whole cells.
    assert all(told[name] % 10 == 0 for name in NAMES)
    assert all(-2 <= rows[name] * share - told[name] <= 11 for name in NAMES)
