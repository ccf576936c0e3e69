import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.contracts import Message
from wardround.core.errors import Diverged, Refusal
from wardround.engine import registry
from wardround.engine.simulate import Simulation
from wardround.transforms.compression import compression

MESSAGE = Message({"update": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 400)), jnp.float32)})
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("scheme", "up", "down"),
    [("aggressive", 0.4 * 2, 3), ("moderate", 0.5 * 4, 5), ("conservative", 8, 8)],
)
def test_bytes_are_those_of_the_table_times_the_slots_of_the_frame(scheme, up, down):
    """400,000 entries over 4,096 x 110 slots (an eighth more, and up to the next block)."""
    link = compression(scheme=scheme)
    slots = 4096 * 110
    ways = (down, lambda m: link.down(link.init(m), m, KEY)), (up, lambda m: link.up(m, m, KEY))
    for bits, way in ways:
        left = jax.eval_shape(way, MESSAGE)
        codes = slots * bits / 8
        # Beside the codes: two or three seeds of 8 bytes, and 8 bytes for every 4,096 numbers that are sent.
        assert codes <= trees.nbytes(left) <= codes * 1.008 + 32


def test_hadamard_needs_an_eighth_fewer_numbers():
    links = [compression(basis=basis) for basis in ("hadamard", "kashin")]
    sizes = [trees.nbytes(jax.eval_shape(lambda m, link=link: link.up(m, m, KEY), MESSAGE)) for link in links]
    assert sizes[1] / sizes[0] == pytest.approx(110 / 98, rel=0.001)  # blocks of 4,096


def test_both_ways_the_mean_is_right():
    """The mean of k draws comes as near as their number lets it: the squared error falls like 1/k."""
    link = compression(scheme="moderate")
    small = Message({"update": MESSAGE.arrays["update"][:8]})

    @jax.jit
    @jax.vmap
    def errors(key):
        up = link.release(link.init(small), link.up(small, small, key)).arrays["update"]
        down = link.receive(link.down(link.init(small), small, key)).arrays["update"]
        return up - small.arrays["update"], down - small.arrays["update"]

    for each in errors(jax.random.split(KEY, 256)):
        single, mean = jnp.square(each).sum(axis=(1, 2)).mean(), jnp.square(each.mean(axis=0)).sum()
        assert float(mean / single) == pytest.approx(1 / 256, rel=0.15)


def test_one_direction_alone():
    down, up = compression(direction="down"), compression(direction="up")
    for left in (down.up(MESSAGE, MESSAGE, KEY), up.down(up.init(MESSAGE), MESSAGE, KEY)):
        assert left.arrays["update"] is MESSAGE.arrays["update"]
    assert up.coded
    assert not down.coded


def test_an_unknown_scheme_is_refused():
    with pytest.raises(Refusal, match="'scheme' must be one of 'aggressive', 'moderate', 'conservative', not 'mild'"):
        registry.find("transform", "compression").build(scheme="mild")


def test_an_answer_that_is_not_finite_is_named_and_moves_no_model(make_federation, model):
    federation = make_federation([20, 20, 20])
    federation.x[federation.first[1]] = np.nan
    algorithm = fed_avg(model, weighted_mean())
    with Simulation(federation, transform=compression(smallest=1), device_count=1) as engine:
        progress = engine.begin(algorithm, model.init(KEY))
        with pytest.raises(Diverged) as told:
            engine.train(algorithm, progress, [(1, np.arange(3))])
    assert (told.value.round, told.value.sites) == (1, ("site-1",))
