import jax
import jax.numpy as jnp
import numpy as np
import optax

from wardround.weak_supervision.search import usefulness as module
from wardround.weak_supervision.search.usefulness import SiteVotes, usefulness

TRUTH = np.repeat([0, 1], 50)


def rules(seed=0, many=80):
    """Records 0 to 49 are of class 0, others of class 1; a rule that votes for its class is good."""
    generator = np.random.default_rng(seed)
    about = generator.integers(0, 2, many)
    fired = generator.random((100, many)) < np.where(TRUTH[:, None] == about, 0.3, 0.03)
    return fired, about, generator.integers(0, 2, many)


def test_candidates_like_accepted_ones_seem_useful():
    fired, about, labels = rules()
    good = (labels == about).astype(float)
    site = SiteVotes(fired[:, :40], fired[:, 40:], 3)
    (found,) = usefulness([site], labels[:40], good[:40], 2)
    assert found.shape == (40, 2)
    right, wrong = found[np.arange(40), about[40:]], found[np.arange(40), 1 - about[40:]]
    assert right.mean() > wrong.mean() + 0.4
    (again,) = usefulness([site], labels[:40], good[:40], 2)
    np.testing.assert_array_equal(found, again, "the same seed, the same estimate")


def test_sites_side_by_side_are_each_as_alone():
    """Whatever they are filled up to: 100 and 30 records, 7 and 40 candidates, a site without any."""
    fired, about, labels = rules()
    good = (labels == about).astype(float)
    sites = [
        SiteVotes(fired[:, :40], fired[:, 40:], 3),
        SiteVotes(fired[::4, :40], fired[::4, 40:47], 4),
        SiteVotes(fired[:5, :40], fired[:5, :0], 5),
    ]
    together = usefulness(sites, labels[:40], good[:40], 2)
    for site, found in zip(sites, together, strict=True):
        (alone,) = usefulness([site], labels[:40], good[:40], 2)
        assert found.shape == (site.candidates.shape[1], 2)
        np.testing.assert_allclose(found, alone, atol=2e-4)


def test_a_network_is_what_its_description_says():
    """The same network written out for one site: inputs (class, record), 10, 10, 1; Adam; no rows filled in."""
    fired, about, labels = rules(1, many=12)
    answers = (labels == about).astype(np.float32)
    (found,) = usefulness([SiteVotes(fired, fired, 9)], labels, answers, 2)
    params = module.first_weights(jax.random.key(9), 100, 2, jnp.float32(100))

    def seen(label):
        length = np.maximum(np.sqrt(fired.sum(axis=0)), 1)
        blocks = [(fired / length).T * (np.asarray(label) == one)[:, None] for one in (0, 1)]
        return np.concatenate(blocks, axis=1).astype(np.float32)

    def forward(params, x):
        one, two, three = params["biases"]
        x = jnp.maximum(x @ params["first"].reshape(200, 10) + one, 0)
        return jnp.maximum(x @ params["second"] + two, 0) @ params["third"] + three

    def loss(params):
        chance = 1 / (1 + jnp.exp(-forward(params, seen(labels))))
        return -jnp.mean(answers * jnp.log(chance) + (1 - answers) * jnp.log(1 - chance))

    optimizer = optax.adam(module.RATE)

    @jax.jit
    def step(params, memory):
        value, gradient = jax.value_and_grad(loss)(params)
        update, memory = optimizer.update(gradient, memory)
        return value, optax.apply_updates(params, update), memory

    memory, best, waited = optimizer.init(params), np.inf, 0
    for _ in range(module.STEPS):
        value, stepped, after = step(params, memory)
        waited = 0 if value < best - module.SMALLEST_GAIN else waited + 1
        best = min(best, float(value))
        if waited >= module.PATIENCE:
            break
        params, memory = stepped, after
    for label in (0, 1):
        expected = 1 / (1 + np.exp(-np.asarray(forward(params, seen(np.full(12, label))))))
        np.testing.assert_allclose(found[:, label], expected, atol=1e-3)


def test_before_anything_is_judged_nothing_is_known():
    site = SiteVotes(np.zeros((6, 0), bool), np.zeros((6, 3), bool), 0)
    assert usefulness([site], np.zeros(0), np.zeros(0), 2)[0].tolist() == [[0.5, 0.5]] * 3
    assert usefulness([], np.zeros(1), np.ones(1), 2) == []
