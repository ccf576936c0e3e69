import jax
import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.workflows.pain.experiment import PainExperiment, PainSettings, two_groups
from wardround.workflows.pain.frames import PainFrames, make_faces
from wardround.workflows.pain.sampling import federation_of, session_parts

MODEL = {"filters": (2,), "dense": 3, "statistics_rate": 2.0, "normalization": "batch"}
SETTINGS = PainSettings(
    model=MODEL, learning_rate=0.1, batch_size=8, rounds=2, patience=1, threshold=8, ways=("F", "FP"), starts=("N", "C")
)


@pytest.fixture(scope="module")
def experiment():
    groups = two_groups(make_faces(subjects=4, sessions=3, frames=8, side=10, share=0.4, seed=1))
    return PainExperiment(*groups, SETTINGS, 5)


def test_groups_share_nobody_and_flip():
    frames = make_faces(subjects=5, sessions=1, frames=2, side=6)
    one, other = two_groups(frames)
    assert (one.subjects, other.subjects) == (["01", "03", "05"], ["02", "04"])
    assert two_groups(frames, flip=True)[0].subjects == ["02", "04"]


def test_convolutions_are_shared_and_dense_layers_stay(experiment):
    algorithm = experiment.algorithms["FP"]
    sent = set(algorithm.broadcast(experiment.random).arrays["params"])
    assert {name.split("/")[0] for name in sent} == {"conv_0", "norm_0"}


def test_groups_are_those_of_the_thesis_or_of_whoever_asks():
    x, y = np.zeros((25, 2, 2, 1), np.uint8), np.ones(25, int)
    numbers = [42, 43, 47, 48, 49, 52, 59, 64, 66, 80, 92, 95, 96, 97, 103, 106, 107, 108, 109, 115, 120, 121, 123, 124]
    people = np.array([f"{number:03d}-aa" for number in numbers] + ["130"])
    frames = PainFrames(x, y, people, np.zeros(25, int))
    one, other = two_groups(frames)
    # Table 3.1: 42, 47, 49, 66 are of group 1; 43, 48, 52, 59, 64 of group 2, where whoever is new is, too.
    assert [int(name[:3]) for name in one.subjects] == [42, 47, 49, 66, 95, 97, 103, 106, 108, 121, 123, 124]
    assert other.subjects[-1] == "130"
    assert two_groups(frames, first=["130"])[0].subjects == ["130"]
    for wrong in (["nobody"], list(people)):
        with pytest.raises(Refusal, match=r"(?i)nobody is called|two groups need"):
            two_groups(frames, first=wrong)


def test_people_without_later_pain_are_refused_before_anything_is_trained():
    frames = make_faces(subjects=4, sessions=3, frames=8, side=10, share=0.4, seed=1)
    early = PainFrames(frames.x, frames.y * (frames.session == 0), frames.subject, frames.session)
    with pytest.raises(Refusal, match="feels pain after the first session"):
        PainExperiment(*two_groups(early), SETTINGS, 5).run()


@pytest.mark.slow
def test_what_sites_keep_goes_on_from_session_to_session(experiment):
    def trained(start):
        parts = session_parts(experiment.second, 0, 8, np.random.default_rng(1))
        return experiment.train("FP", federation_of(experiment.second, parts), experiment.random, start)[0]

    first = jax.device_get(trained(None))
    again = jax.device_get(trained(jax.tree.map(jax.numpy.asarray, first)))
    # A second call without a start repeats the first one to the bit; with one it goes on.
    for name, array in first.clients["own"].items():
        np.testing.assert_array_equal(array, jax.device_get(trained(None)).clients["own"][name])
    assert not np.array_equal(again.clients["own"]["dense_1/kernel"], first.clients["own"]["dense_1/kernel"])


@pytest.mark.slow
def test_the_whole_table(experiment):
    found = experiment.run()
    assert list(found) == [
        *("RANDOM", "BC-CNN", "F-CNN (N)", "F-CNN (C)", "FP-CNN (N)", "FP-CNN (C)"),
    ]
    # Every way is tested on the same people and sessions; nobody's session without pain is among them.
    tested = {name: [(one.subject, one.session, one.frames) for one in scores] for name, scores in found.items()}
    assert all(one == tested["RANDOM"] for one in tested.values())
    assert {one.session for one in found["RANDOM"]} <= {1, 2}
    # Tested on session 1 before any training on the second group: a start alone decides.
    for way in ("F", "FP"):
        first = [one for one in found[f"{way}-CNN (C)"] if one.session == 1]
        assert first == [one for one in found["BC-CNN"] if one.session == 1] or way == "FP"
