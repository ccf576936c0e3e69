"""Systems of equations solved site by site: NumPy's answers, and no batch that waits for its own threads."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wardround
from wardround.core.solvers.linear_system import inverse, solution

RANDOM = np.random.default_rng(3)
MATRICES = RANDOM.normal(size=(2, 3, 5, 5)).astype(np.float32) + 4 * np.eye(5, dtype=np.float32)
VALUES = RANDOM.normal(size=(2, 3, 5)).astype(np.float32)


def test_they_are_those_of_numpy_for_one_site_and_for_many():
    np.testing.assert_allclose(
        solution(MATRICES[0, 0], VALUES[0, 0]), np.linalg.solve(MATRICES[0, 0], VALUES[0, 0]), rtol=2e-5
    )
    twice = jax.jit(jax.vmap(jax.vmap(solution)))(MATRICES, VALUES)
    np.testing.assert_allclose(twice, np.linalg.solve(MATRICES, VALUES[..., None])[..., 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.vmap(inverse))(MATRICES), np.linalg.inv(MATRICES), rtol=1e-4, atol=1e-6)


def solver_calls(function, *arguments):
    """The shapes that LAPACK is called with in the program that sites' numbers are mapped through."""
    program = jax.jit(jax.vmap(function)).lower(*arguments).as_text()
    calls = [line for line in program.splitlines() if "lapack_" in line]
    return [shape for line in calls for shape in re.findall(r"tensor<([0-9x]+)xf32>", line)]


@pytest.mark.parametrize(("solver", "given"), [(solution, (MATRICES[0], VALUES[0])), (inverse, (MATRICES[0],))])
def test_no_call_holds_more_than_one_site(solver, given):
    """A batch of systems is divided among the threads that wait for it: with two of them, two batches never end."""
    held = solver_calls(solver, *given)
    assert held
    assert all(shape.split("x")[0] in ("1", "5") and shape.count("x") <= 1 for shape in held)
    batched = solver_calls(jnp.linalg.inv, MATRICES[0])
    assert any(shape.startswith("3x") for shape in batched)  # what the rule is there to prevent, seen by the same eyes


def test_nothing_else_solves_systems_in_compiled_programs():
    batched = re.compile(
        r"\b(jnp|jax\.numpy|jax\.scipy)\.linalg\.(solve|inv|cholesky|eigh|qr|svd|lstsq|pinv|cho_\w+)\b"
    )
    found = {
        path.name for path in Path(wardround.__file__).parent.rglob("*.py") if batched.search(path.read_text("utf-8"))
    }
    assert found == {"linear_system.py"}


ENDLESS = """
import jax, numpy as np
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.partial_pooling import partial_pooling
from wardround.core.contracts import Task
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic

task, random = Task((88,), ("no", "yes")), np.random.default_rng(0)
def part(rows):
    x = random.normal(size=(rows, 88)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32)
federation = assemble([(f"site-{n}", [part(6000), part(0), part(10)]) for n in range(5)], task)
model = logistic(task)
pooling = partial_pooling(model, weighted_mean())
with Simulation(federation, seed=1) as engine:
    progress = engine.begin(pooling, model.init(jax.random.key(0)))
    engine.train(pooling, progress, [(number + 1, np.arange(5)) for number in range(10)])
print("done")
"""


@pytest.mark.slow
def test_partial_pooling_of_many_coefficients_ends():
    """Five sites and 178 coefficients, enough rows for a device each: on two cores this hung for ever."""
    ran = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=300, check=True)
    assert ran.stdout == "done\n"
