"""Partners chosen over real sites are those of the simulation; a choice is made once, and asks nothing unannounced."""

import json
import os
import threading

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support import in_process
from tests.support.results import plain
from wardround import __version__
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import RoundDone
from wardround.deploy.party.decisions import read_offer, store_offer, withdraw
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.approvals import reasons_against
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy import Policy, decide
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.release.partner_questions import numbers_in_probe
from wardround.deploy.site.study_summary import describe
from wardround.partners.probes.losses import losses
from wardround.partners.probes.own_models import own_models
from wardround.partners.probes.slopes import slopes
from wardround.report.run.page import write_report
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import parse_study
from wardround.study.methods import own_method
from wardround.study.partners import asks_of
from wardround.workflows.run import run

NAMES = ("bo", "freetown", "kenema", "makeni")
USER = "freetown"
PATIENTS = 120
BY_COUNTS = {"smallest_cell": 10}
"""As the sites' policies want it."""


class InTurn(in_process.Consortium):
    """Sites of one size that answer one after the other, so that one compiled program serves them all."""

    def __init__(self, folder):
        super().__init__(folder, NAMES)
        self.turn = threading.Lock()
        for path in self.tables.values():
            table = pd.read_csv(path)
            few = table.groupby("ebola").head(PATIENTS // 2)
            assert len(few) == PATIENTS
            few.to_csv(path, index=False)

    def ask(self, *request):
        with self.turn:
            return super().ask(*request)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    return InTurn(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(autouse=True)
def undisturbed(consortium):
    yield
    consortium.away, consortium.change = set(), lambda site, topic, header, reply: reply


@pytest.fixture
def exact(consortium):
    """Lets the sites' policies tell everything exactly, as a simulation does, until the test ends."""
    texts = {home: home.policy_path.read_text() for home in consortium.homes.values()}

    def allow():
        for home in texts:
            set_policy(home.policy_path, "smallest_cell", "1")

    yield allow
    for home, text in texts.items():
        home.policy_path.write_text(text)


def study_of(name, partners, **tables):
    said = {"algorithm": in_process.KEPT, **tables, "study": {"user": USER, **tables.get("study", {})}}
    words = in_process.study_of(name, 3, **said).model_dump(mode="json", exclude_none=True)
    words["study"]["name"] = name
    return parse_study({**words, "partners": partners}, where="test")


def simulated(consortium, study):
    """The same words in simulation, on the same patients in one file."""
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    path = consortium.folder / "patients.csv"
    pd.concat(frames).to_csv(path, index=False)
    study = study.model_copy(update={"data": study.data.model_copy(update={"path": str(path)})})
    folder = RunFolder.create(consortium.folder / "simulated" / study.study.name, resume=False)
    result = plain(run(study, folder, [own_method(study)], kind="run"))
    return result, folder.path


CHOICES = [
    ("gradient_distance", {"rounds": 2, "top": 2}),
    ("evidence", BY_COUNTS),
    ("distribution_distance", {**BY_COUNTS, "top": 2}),
    pytest.param("influence", {"top": 2, "iterations": 4}, marks=pytest.mark.slow),
    ("leave_one_out", {"top": 2}),
]


@pytest.mark.parametrize(("choice", "settings"), CHOICES)
def test_partners_and_model_are_those_of_the_simulation(consortium, exact, choice, settings):
    """scaffold keeps something at the sites: what one training of a choice leaves there must not reach the next.

    Sites remember three rounds, so a training of five would lose the first ones to what the training before it left.
    Losses of held-out patients leave on a grid of a patient's half step, on which two dozen patients leave all partners
    alike: choices by losses are compared at sites with a smallest cell of 1, which tell them exactly.
    """
    if choice in ("leave_one_out", "influence"):
        exact()
    rounds = 5 if choice == "leave_one_out" else 3
    study = study_of(choice, {"name": choice, **settings}, study={"rounds": rounds})
    deployed = consortium.conduct(study)
    simulation, path = simulated(consortium, study)
    found, expected = (result["methods"][0] for result in (deployed, simulation))
    assert (found["user"], found["partners"]) == (USER, expected["partners"])
    model, theirs = (load_file(one / "model.safetensors") for one in (consortium.run(study), path))
    assert all(np.abs(model[key] - theirs[key]).max() <= 1e-5 for key in theirs)
    others = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    ours = consortium.rounds(study)
    assert [one["round"] for one in ours] == [one["round"] for one in others] == list(range(rounds + 1))
    assert [one["sites"] for one in ours] == [one["sites"] for one in others]
    told, other = (one[0]["measures"]["told"] for one in (ours, others))
    assert told["score"] == pytest.approx(other["score"], rel=1e-3, abs=1e-5)
    assert (told["chosen"], told["probes"]) == (other["chosen"], other["probes"])
    # What was announced is what left: for every probe there are answers of just that many numbers.
    left = {sum(int(np.prod(shape)) for shape in one["arrays"].values()) for one in consortium.left(USER, study)}
    parameters = sum(array.size for array in model.values())
    assert {numbers_in_probe(one, parameters, len(NAMES)) for one in asks_of(study).probes} <= left


def test_who_is_not_chosen_trains_no_more_and_the_report_tells_the_choice(consortium):
    study = study_of("asked", {"name": "gradient_distance", "errors": False, "top": 1})
    begun = []

    def observe(event):
        if isinstance(event, RoundDone) and event.round == 0:
            begun.append(len(consortium.asked))

    (partner,) = consortium.conduct(study, observe)["methods"][0]["partners"]
    before, after = consortium.asked[: begun[0]], consortium.asked[begun[0] :]
    assert {site for site, topic, _ in before if topic == "round"} == set(NAMES)
    for topic in ("round", "finish"):
        assert {site for site, what, _ in after if what == topic} == {USER, partner}
    page = write_report(consortium.run(study)).read_text()
    assert "Choosing partners" in page
    assert f"chose <strong>{partner}</strong>" in page
    kept = json.loads((consortium.run(study) / "partners.json").read_text())
    assert (kept["user"], kept["partners"]) == (USER, [partner])
    assert not (consortium.run(study) / "choosing").exists()


def test_a_choice_that_is_made_is_not_made_again(consortium, monkeypatch):
    """The coordinator dies when the choice has just got its name, before any training."""
    study = study_of("once", {"name": "gradient_distance", "errors": False, "top": 1})
    replace = os.replace
    courses = []

    def replaced(source, target):
        replace(source, target)
        if str(target).endswith("partners.json"):
            raise in_process.Died

    def hear(site, topic, header, reply):
        courses.append(header.get("course"))
        return reply

    consortium.change = hear
    with monkeypatch.context() as armed:
        armed.setattr(os, "replace", replaced)
        with pytest.raises(in_process.Died):
            consortium.conduct(study)
    assert 1 in courses
    made = (consortium.run(study) / "partners.json").read_bytes()
    courses.clear()
    consortium.conduct(study)
    assert set(courses) == {None}
    assert (consortium.run(study) / "partners.json").read_bytes() == made
    assert [one["round"] for one in consortium.rounds(study)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("point", "count"),
    [("coordinator.round.concluded", 5), ("coordinator.round.one_answered", 45), ("site.kept.saved", 17)],
)
def test_a_death_amid_the_choice_costs_nothing(consortium, point, count, monkeypatch):
    """Four trainings of two rounds with something kept at the sites; the deaths fall into the second or third."""
    words = {"name": "leave_one_out", "top": 2}
    studies = [study_of(name, words, study={"rounds": 2}) for name in ("calm", f"{point}-{count}")]
    if not consortium.run(studies[0]).exists():
        consortium.conduct(studies[0])
    before = len(consortium.deaths)
    with monkeypatch.context() as armed:
        in_process.die_at(armed, point, count)
        consortium.until_done(studies[1])
    assert len(consortium.deaths) == before + 1
    assert consortium.model(studies[1]) == consortium.model(studies[0])
    for name in NAMES:
        calm, disturbed = (consortium.left(name, study) for study in studies)
        assert [(one["topic"], one["round"]) for one in disturbed] == [(one["topic"], one["round"]) for one in calm]


def test_a_site_that_leaves_amid_the_choice_is_no_partner(consortium):
    study = study_of("leaving", {"name": "distribution_distance", "top": 3, **BY_COUNTS})

    def leave(site, topic, header, reply):
        if (site, topic) == ("makeni", "query") and header["query"]["name"] == "kinds_of":
            withdraw(consortium.homes["makeni"], header["study"], by="admin-makeni", why="second thoughts")
        return reply

    consortium.change = leave
    assert sorted(consortium.conduct(study)["methods"][0]["partners"]) == ["bo", "kenema"]


def test_a_partner_that_tells_a_false_loss_at_home_is_named_in_the_result(consortium):
    """A loss at home of 5 makes its model look as if it did wonders elsewhere; the asking site measured that model."""

    def change(site, topic, header, reply):
        if (site, topic) != ("kenema", "round") or header["algorithm"].get("name") != "own_models":
            return reply
        said, message = decode(reply)
        return encode(said, Message({**message.arrays, "cv": np.float32(5) * message.arrays["weight"]}, message.meta))

    consortium.change = change
    result = consortium.conduct(study_of("false-home", {"name": "ndoye", "epochs": 30, "folds": 2, "top": 1}))
    named = [note for note in result["notes"] if "worth a look" in note and "its model" in note]
    assert len(named) == 1
    assert named[0].startswith("The loss that kenema tells of its own model")
    assert "it tells a loss of 5 at home" in named[0]
    assert "at freetown" in named[0]


def test_nothing_is_told_of_a_handful_of_patients(consortium):
    """2 % of 120 patients are 2, and the sites' policies say 10: to the choice it is as if there were none."""
    data = {"shares": [0.9, 0.02, 0.08]}
    study = study_of("few", {"name": "leave_one_out"}, study={"rounds": 1}, data=data)
    with pytest.raises(Refusal, match="no validation patients to judge by"):
        consortium.conduct(study)


def test_what_cannot_be_is_refused_before_anything_is_offered(consortium):
    before = len(consortium.asked)
    for number, (tables, words) in enumerate(
        (
            ({"study": {"user": None}}, "does not say which"),
            ({"study": {"user": "monrovia"}}, "not among the sites"),
            ({"partners": {"by_hand": ["monrovia"]}}, "not among the possible partners"),
            ({"partners": {"by_hand": ["bo"], "withdrawn": ["bo"]}}, "not among the possible partners"),
            ({"partners": {"withdrawn": ["monrovia"]}}, "said to have withdrawn"),
            ({"partners": {"top": 1, "threshold": 0.0}}, "two ways"),
            ({"transforms": [{"name": "secure_sum"}]}, "reveals only sums"),
            ({"privacy": {"epsilon": 3.0}}, "without noise"),
        )
    ):
        partners = {"name": "gradient_distance", **tables.get("partners", {})}
        rest = {name: table for name, table in tables.items() if name != "partners"}
        with pytest.raises(Refusal, match=words):
            consortium.conduct(study_of(f"wrong-{number}", partners, **rest))
    assert len(consortium.asked) == before


# ---- what a site allows ----

TASK = Task((4,), ("0", "1"), "ebola")


def probe_of(study, factory, **settings):
    return recipe_of(factory(assemble.model_of(study, TASK), **settings))


def test_a_probe_that_the_study_does_not_name_is_refused(consortium):
    study = study_of("asked", {"name": "gradient_distance", "errors": False, "top": 1})  # approved and done above
    if not consortium.run(study).exists():
        consortium.conduct(study)
    handler = consortium.handlers["bo"]

    def answered(recipe, topic="round", **more):
        words = {"protocol": 1, "wardround": __version__, "study": study_id(study), "round": 1, "nonce": "ab"}
        how = {"transforms": [], "seed": 278} if topic == "round" else {}
        header = {**words, "algorithm": to_json(recipe), **how, "course": 1, **more}
        return decode(handler.answer(topic, "server", encode(header, Message({}))))[0]

    for recipe in (probe_of(study, own_models), probe_of(study, losses)):
        said = answered(recipe)
        assert said["status"] == "refused"
        assert f"does not use the probe {recipe.name} with these settings" in said["why"]
    # One that it does name is answered once: neither about other patients nor in another course.
    for recipe, course in ((probe_of(study, slopes, part="test"), 1), (probe_of(study, slopes), 2)):
        said = answered(recipe, course=course)
        assert said["status"] == "refused"
        assert "asked before in other words" in said["why"] or "all were given" in said["why"]
    # This choice trains nothing, so no course of its algorithm is begun; and what is no number is no course.
    own = recipe_of(assemble.build(study, own_method(study), TASK, NAMES))
    for more in ({"course": -1}, {"course": 0}, {}):
        assert "xtra training" in answered(own, "begin", **more)["why"]
    for course in (True, "../x"):
        assert "'course': input should be a valid integer" in answered(own, "begin", course=course)["why"]


def test_the_approver_reads_what_a_choice_lets_leave(consortium):
    """A gradient has as many numbers as an update; of four sites, both ways, 8 models are judged."""
    study = study_of("read", {"name": "gradient_distance", "rounds": 2}, deploy={"sites": list(NAMES)})
    home = consortium.homes["bo"]
    HomeAccess(home).store_offer(study_id(study), study.model_dump(mode="json"), "researcher")
    shown = describe(home, read_offer(home, study_id(study)))
    text = "\n".join(dict(shown.parts)["What leaves for the choice of partners"])
    assert "sent whether you are chosen or not" in text
    assert "train for 2 rounds with all sites" in text
    assert f"{2 * 8 + 8 * 8 + 1} numbers" in text
    assert f"{shown.facts['arrays']['update'] + 1} numbers" in text
    assert {"probe/slopes", "probe/losses"} <= set(shown.facts["components"])


def test_the_policy_decides_about_a_choice_before_it_is_approved(consortium):
    study = study_of("cells", {"name": "evidence"})
    home = consortium.homes["bo"]
    offer = store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    (why,) = reasons_against(home, offer, None)
    assert why.startswith("the choice of partners reports groups of 5 patients or more")
    assert "[partners] smallest_cell" in why
    policy = Policy(components=["choice/*", "algorithm/*", "aggregator/*", "model/*"])
    reasons = decide(policy, study.model_dump(mode="json"))
    assert "the component probe/information is not allowed" in reasons
    assert "the component query/cells_of is not allowed" in reasons
