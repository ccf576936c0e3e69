import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Task
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.partners.choice import Question
from wardround.partners.choices.leave_one_out import leave_one_out

TASK = Task((3,), (), "days")
SLOPES = ((1.0, 0.0, -1.0), (1.0, 0.2, -1.0), (-1.0, 2.0, 0.5), (1.1, 0.0, -0.9))
"""Sites 0, 1 and 3 alike, site 2 another world."""


# The Hessian is about 2, so a step of 0.3 shrinks the distance to the optimum by 0.4 a round: 60 rounds converge.
ROUNDS = 60
MODEL = linear(TASK)
ALGORITHM = fed_avg(MODEL, weighted_mean(), batch_size=0, learning_rate=0.3)


def regression():
    generator = np.random.default_rng(2)

    def rows(site, size):
        x = generator.normal(0, 1, (size, 3)).astype(np.float32)
        y = x @ np.array(SLOPES[site]) + 0.5 + generator.normal(0, 0.5, size)
        return x, y.astype(np.float32)

    sizes = (40, 60, 50, 35)
    return assemble([(f"site-{i}", [rows(i, n), rows(i, 25), rows(i, 20)]) for i, n in enumerate(sizes)], TASK)


def part_of(federation, part, site):
    first, count = federation.part(part)
    rows = slice(int(first[site]), int(first[site] + count[site]))
    x = np.hstack([federation.x[rows], np.ones((int(count[site]), 1))]).astype(np.float64)
    return x, federation.y[rows].astype(np.float64)


def least_squares(federation, sites):
    """The model that all of these sites' training rows lead to, by NumPy."""
    x, y = (np.concatenate(parts) for parts in zip(*[part_of(federation, "train", s) for s in sites], strict=True))
    return np.linalg.lstsq(x, y, rcond=None)[0]


def squared_errors(federation, part, site, weights):
    x, y = part_of(federation, part, site)
    return np.square(x @ weights - y)


def ask(federation, user, candidates):
    params = MODEL.init(jax.random.key(0))
    return Question(Simulation(federation), MODEL, ALGORITHM, params, ROUNDS, user, candidates)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_scores_are_those_of_least_squares_without_each_site(part):
    federation = regression()
    evidence = leave_one_out(part=part).assess(ask(federation, 1, (0, 2, 3)))
    whole = squared_errors(federation, part, 1, least_squares(federation, (0, 1, 2, 3)))
    for site in (0, 2, 3):
        others = [one for one in range(4) if one != site]
        rise = squared_errors(federation, part, 1, least_squares(federation, others)) - whole
        assert evidence.score[site] == pytest.approx(rise.mean(), rel=1e-3, abs=1e-5)
        assert evidence.error[site] == pytest.approx(rise.std(ddof=1) / np.sqrt(len(rise)), rel=1e-3)
    assert np.isnan(evidence.score[1])
    assert evidence.cut == 0
    # The sites of the same world help, the other one harms.
    assert evidence.score[0] > 0 > evidence.score[2]
    assert evidence.score[3] > 0


def test_only_candidates_take_part():
    federation = regression()
    question = ask(federation, 0, (1, 2))
    evidence = leave_one_out().assess(question)
    assert np.isnan(evidence.score[[0, 3]]).all()
    assert not any("site-3" in record.sites for record in question.records)
    rise = squared_errors(federation, "validation", 0, least_squares(federation, (0, 1))) - squared_errors(
        federation, "validation", 0, least_squares(federation, (0, 1, 2))
    )
    assert evidence.score[2] == pytest.approx(rise.mean(), rel=1e-3)
    assert evidence.details["trainings"] == 3
