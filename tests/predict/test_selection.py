"""Predictions follow what test patients confirmed: rules, a threshold of competence, or both; and say so."""

import json

import numpy as np
import pytest

from tests.support.selection.exchange import ASKED, classifier, patients
from wardround.classifiers.exchange import load_classifier
from wardround.classifiers.local_fit import local_preparation
from wardround.core.errors import Refusal
from wardround.predict.selection import NEARBY, OWN_RULE, SelectionPredictor
from wardround.runs.explain.selection_file import CompetenceThreshold, Selection, classifier_file, write_selection
from wardround.runs.model_file import ModelFacts
from wardround.runs.sites import PredictionTask
from wardround.selection.competence import competence, cross_entropy, loss_nearby
from wardround.selection.known_patients import FILE, known_patients
from wardround.selection.neighbours import nearest

K, LIMIT, EPSILON = 15, 0.2, 1e-3
FILES = {"A": classifier(seed=0), "B": classifier(seed=5, rows=200), "C": classifier("mlp", seed=6, rows=200)}
RULE = {"conditions": [{"column": "age", "kind": "above", "low": 70.0}], "source": "C"}


@pytest.fixture(scope="module")
def known():
    own = patients(250, seed=9)
    preparation = local_preparation("A", own.frame, ASKED)
    scores = np.stack([load_classifier(one, ASKED, source=name).scores(own.frame) for name, one in FILES.items()])
    return own, preparation, scores


def selection(preparation, strategy, rules=(), *, threshold=LIMIT):
    task = PredictionTask(kind="classification", target="died", classes=("no", "yes"), features=(), positive="yes")
    facts = ModelFacts(
        wardround="0", study="s", method="m", label="M", rounds=0, task=task, shape=(3,), recipe=None, preparation=None
    )
    limit = CompetenceThreshold(
        value=threshold, k=K, epsilon=EPSILON, pick="competence", sources=("B", "C"),
        preparation=json.loads(preparation.to_json()), file=FILE,
    )  # fmt: skip
    return Selection(
        site="A", study="s", point="youden", facts=facts, columns=dict(ASKED.columns),
        thresholds={"A": 0.5, "B": 0.4, "C": 0.6}, files={name: classifier_file(name) for name in FILES},
        rules=rules, words=("age above 70",) * len(rules), strategy=strategy, threshold=limit,
    )  # fmt: skip


def predictor(folder, said, known):
    own, preparation, scores = known
    content = known_patients(preparation.apply(own.frame), scores, own.outcome).content()
    write_selection(folder, said, dict(FILES), content)
    return SelectionPredictor(said, folder)


def expected(known, new):
    """Who is most competent, worked out one patient after the other."""
    own, preparation, scores = known
    losses = np.stack([cross_entropy(one, own.outcome) for one in scores])
    near = nearest(preparation.apply(own.frame), preparation.apply(new), K)
    found = competence(loss_nearby(losses, near), EPSILON)
    best = found.argmax(axis=0)
    return np.array(["ABC"[1 + who] if found[who, row] > LIMIT else "A" for row, who in enumerate(best)])


def test_the_threshold_is_followed(tmp_path, known):
    new = patients(120, seed=21).frame
    found = predictor(tmp_path, selection(known[1], "threshold"), known).predict(new)
    who = expected(known, new)
    assert set(who) == {"A", "B", "C"}  # else the test would show nothing
    assert (found["decided by"] == who).all()
    limits = {"A": 0.5, "B": 0.4, "C": 0.6}
    for row in range(0, 120, 7):
        name = who[row]
        score = load_classifier(FILES[name], ASKED, source=name).scores(new.iloc[[row]])[0]
        assert found["probability of yes"][row] == pytest.approx(score, abs=1e-6)
        assert found["died"][row] == ("yes" if score >= limits[name] else "no")
        words = OWN_RULE if name == "A" else NEARBY.format(source=name, k=K)
        assert found["rule"][row] == words


def test_rules_come_first_and_the_threshold_takes_the_rest(tmp_path, known):
    new = patients(120, seed=21).frame
    found = predictor(tmp_path, selection(known[1], "hybrid", (RULE,)), known).predict(new)
    old = (new["age"] > 70).to_numpy()
    assert (found["decided by"][old] == "C").all()
    assert (found["rule"][old] == "age above 70").all()
    assert (found["decided by"][~old] == expected(known, new)[~old]).all()


def test_without_the_sites_own_patients_nothing_is_guessed(tmp_path, known):
    said = selection(known[1], "threshold")
    predictor(tmp_path, said, known)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE).write_bytes(b"\x00" * 20)
    with pytest.raises(Refusal, match="damaged"):
        SelectionPredictor(said, tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(Refusal, match="known patients are missing"):
        SelectionPredictor(said, tmp_path)
