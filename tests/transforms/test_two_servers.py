"""A simulated study with two servers: chooses and learns what the protocol chooses and opens, on the same updates."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.aggregators.krum import krum
from wardround.aggregators.median import median
from wardround.aggregators.multi_krum import multi_krum
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.cluster import cluster
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.weight_erosion import weight_erosion
from wardround.core.chain import chain
from wardround.core.contracts import Batch, Message
from wardround.core.errors import Diverged, Refusal
from wardround.engine.simulate import Simulation
from wardround.privacy.two_servers.gram import (
    drop_implausible,
    erosion_distances,
    krum_weights,
    multi_krum_weights,
    squared_distances,
    whole_weights,
)
from wardround.privacy.two_servers.in_process import run_protocol, seeded_draw
from wardround.privacy.two_servers.protocol import Meeting
from wardround.transforms.clip import clip
from wardround.transforms.two_servers import two_servers

KEY = jax.random.key(0)
NOTHING = Message({})
BOUND = 2.0


def left(updates: np.ndarray, weights: np.ndarray, **settings: Any) -> Message:
    """The stack of answers as they leave the simulated sites."""
    up = jax.jit(two_servers(bound=BOUND, **settings).up)
    each = [
        up(NOTHING, Message({"update": jnp.float32(w) * jnp.asarray(u, jnp.float32), "weight": jnp.float32(w)}), KEY)
        for u, w in zip(updates, weights, strict=True)
    ]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *each)


def some_updates(sites: int, entries: int) -> tuple[np.ndarray, np.ndarray]:
    """Around a common one, but for two that point elsewhere; and how many patients each site has."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=entries) + 0.5 * generator.normal(size=(sites, entries))
    rows[:2] = -2 * rows[:2] + generator.normal(size=(2, entries))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) * generator.uniform(0.5, 1.9, (sites, 1))
    return rows.astype(np.float32), generator.integers(5, 500, sites).astype(np.float32)


@pytest.mark.parametrize(
    ("aggregator", "choose"), [(krum(bad=2), krum_weights), (multi_krum(bad=2), multi_krum_weights)]
)
def test_the_same_choice_and_the_same_sum_as_the_protocol(aggregator, choose):
    rows, weights = some_updates(9, 400)
    simulated, _ = aggregator.reduce((), left(rows, weights))
    meeting = Meeting("study", 1, "1", tuple(f"site-{i}" for i in range(9)), 400, BOUND)
    named = dict(zip(meeting.sites, rows.astype(float), strict=True))
    done = run_protocol(meeting, named, lambda gram: choose(drop_implausible(gram)[0], 2), seeded_draw(0))
    assert not {"site-0", "site-1"} & {site for site, weight in done.weights.items() if weight}
    # Entries are rounded to 2^-29 alike; what is left is single precision.
    np.testing.assert_allclose(simulated.arrays["update"], done.mean, atol=2e-7)
    expected = np.linalg.norm(rows[:, None].astype(float) - rows[None], axis=2)
    apart = ~np.eye(9, dtype=bool)
    found = np.sqrt(squared_distances(done.gram))
    assert np.max(np.abs(found[apart] / expected[apart] - 1)) < 1e-5


@pytest.mark.slow
def test_weight_erosion_as_the_protocol_would_do_it(even, model):
    """One round from the start: distances and model from the opened products and the opened sum."""
    algorithm = weight_erosion(model, user=1, p_d=0.3, batch_size=0)
    first = model.init(KEY)
    with Simulation(even, seed=1, transform=two_servers(bound=BOUND)) as engine:
        progress = engine.begin(algorithm, first)
        progress, _ = engine.train(algorithm, progress, [(1, np.arange(7))])
    state = jax.device_get(progress.server)
    # The sites' steps, by the model's own gradient on all rows of each.
    begin, count = even.part("train")
    shapes = jax.tree.structure(first)
    steps = []
    for at, rows in zip(begin, count, strict=True):
        batch = Batch(even.x[at : at + rows], even.y[at : at + rows], np.ones(rows, np.float32))
        gradient = model.gradient(first, batch, KEY)
        steps.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)]).astype(float) * -0.1)
    meeting = Meeting("study", 1, "1", even.sites, len(steps[0]), BOUND)

    def choose(gram):
        apart = erosion_distances(gram, even.sites[1])
        np.testing.assert_allclose(state["distance"], list(apart.values()), rtol=1e-5, atol=1e-6)
        return whole_weights({site: max(0.0, 1 - 0.3 * distance) for site, distance in apart.items()})

    done = run_protocol(meeting, dict(zip(even.sites, steps, strict=True)), choose, seeded_draw(0))
    moved = jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), state["params"], jax.device_get(first))
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved)])
    assert shapes == jax.tree.structure(moved)
    np.testing.assert_allclose(flat, done.mean, atol=1e-6)
    assert 0 < min(done.weights.values()) < max(done.weights.values())


def test_the_rounding_shows():
    # With a bound of 2^28 two binary places are left: 0.3 -> 0.25, -0.9 -> -1; and weights do not matter.
    link = jax.jit(two_servers(bound=2.0**28).up)
    answer = Message({"update": 3 * jnp.float32([0.3, -0.9]), "weight": jnp.float32(3)})
    assert link(NOTHING, answer, KEY).arrays["update"].tolist() == [0.75, -3.0]
    # And an empty site stays empty.
    nothing = Message({"update": jnp.zeros(2), "weight": jnp.float32(0)})
    assert link(NOTHING, nothing, KEY).arrays["update"].tolist() == [0.0, 0.0]


def test_too_long_an_update_names_its_site_and_clip_before_it_helps(even, model):
    algorithm = fed_avg(model, multi_krum(bad=1), learning_rate=1.0)
    with pytest.raises(Diverged, match=r"goes past 0\.01, the greatest length of an update .*raise the bound"):
        one_round(even, model, algorithm, two_servers(bound=0.01))
    one_round(even, model, algorithm, chain([clip(norm=0.01), two_servers(bound=0.01)]))


def one_round(federation, model, algorithm, transform):
    with Simulation(federation, seed=1, transform=transform) as engine:
        progress = engine.begin(algorithm, model.init(KEY))
        return engine.train(algorithm, progress, [(1, np.arange(len(federation.sites)))])


def test_what_two_servers_cannot_do_is_refused_before_the_first_round(even, make_federation, model):
    for algorithm in (fed_avg(model, weighted_mean()), fed_avg(model, median()), cluster(model)):
        with pytest.raises(Refusal, match=r"Two servers reveal only the distances.*krum or m"):
            Simulation(even, transform=two_servers()).begin(algorithm, model.init(KEY))
    with pytest.raises(Refusal, match="fewer than 3"):
        Simulation(make_federation([20, 20]), transform=two_servers()).begin(
            weight_erosion(model, user=0), model.init(KEY)
        )
    # Where nothing is sent there is nothing to refuse.
    Simulation(even, transform=two_servers()).begin(local(model), model.init(KEY))


def test_bytes_are_those_of_the_halves(even, model):
    algorithm = fed_avg(model, multi_krum(bad=1))
    engine = Simulation(even, transform=two_servers(side=2))
    progress = engine.begin(algorithm, model.init(KEY))
    # 8 numbers of 8 bytes, two seeds and two commitments of 32 bytes each, and the weight.
    assert engine.message_bytes(algorithm, progress)[1] == 8 * 8 + 2 * 2 * 32 + 4


def test_a_study_file_names_them_and_the_result_says_what_is_told(tmp_path, capsys):
    path = tiny.write_study(tmp_path, study={"user": "bo"}, algorithm={"name": "weight_erosion", "batch_size": 8})
    path.write_text(path.read_text() + '[[transforms]]\nname = "two_servers"\nbound = 8.0\n')
    said = tiny.call(capsys, "run", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    notes = " ".join(json.loads((tmp_path / "out" / "result.json").read_text())["notes"])
    assert "distances between the sites' updates" in notes
    assert "must not collude" in notes
    assert "distances between the sites" in (tmp_path / "out" / "report.html").read_text()
