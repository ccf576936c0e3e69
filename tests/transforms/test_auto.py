import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.contracts.test_halves import deployed, simulated
from tests.support import tiny_study as tiny
from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.core import trees
from wardround.core.chain import chain, choices_in, tailored
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import row_of
from wardround.engine.traffic import choices_of_round, round_traffic
from wardround.models.mlp import mlp
from wardround.report.notes import compression_notes
from wardround.transforms.auto import auto
from wardround.transforms.secure_sum import secure_sum
from wardround.transforms.top_k import top_k

KEY = jax.random.key(0)
VALUES = np.random.default_rng(0).normal(size=40_000).astype(np.float32)
MESSAGE = Message({"update": jnp.asarray(VALUES), "weight": jnp.float32(2)})


@pytest.mark.parametrize(
    ("seconds", "down", "up"),
    # At 8 bits a second a second is a byte. 160,004 bytes as they are; about 45,500 at 8 bits, 28,500 at 5 bits down
    # and 11,500 at half of 4 bits up; 17,200 at 3 bits down and 4,700 at 0.4 of 2 bits up.
    [
        (170_000.0, "none", "none"),
        (50_000.0, "conservative", "conservative"),
        (30_000.0, "moderate", "moderate"),
        (20_000.0, "aggressive", "moderate"),
    ],
)
def test_the_gentlest_scheme_that_arrives_in_time_is_taken(seconds, down, up):
    link = auto(megabits=8e-6, seconds=seconds)
    sent = jax.eval_shape(lambda m: link.down((), m, KEY), MESSAGE)
    left = jax.eval_shape(lambda m: link.up(m, m, KEY), MESSAGE)
    assert choices_in(sent, left) == {"down": down, "up": up}
    assert max(trees.nbytes(sent), trees.nbytes(left)) <= seconds


def test_what_was_chosen_is_undone():
    link = auto(megabits=8e-6, seconds=50_000.0)
    back = jax.jit(lambda m: link.release((), link.up(m, m, KEY)))(MESSAGE)
    np.testing.assert_allclose(back.arrays["update"], VALUES, atol=0.05)
    assert float(back.arrays["weight"]) == 2
    assert set(back.arrays) == {"update", "weight"}


def test_what_cannot_arrive_in_time_is_refused():
    with pytest.raises(Refusal, match=r"compressed as far as it goes, takes longer than 100 seconds over"):
        jax.eval_shape(lambda m: auto(megabits=8e-6, seconds=100.0).down((), m, KEY), MESSAGE)


def test_the_result_tells_what_was_chosen(tmp_path, capsys):
    path = tiny.write_study(tmp_path, transforms=[{"name": "auto", "megabits": 1.0}])
    said = tiny.call(capsys, "run", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert tiny.recorded(tmp_path / "out")[0]["measures"]["compression"] == {"down": "none", "up": "none"}
    assert (
        "Compression chosen for the line: none to the sites, none from them."
        in (tmp_path / "out" / "result.json").read_text()
    )


# ---- each site by its own line ----

SECONDS = 1000.0
"""A line of 8e-6 megabits a second moves as many bytes in that time."""
WHOLE, SLOW = 8e-3, 8e-6
LINES = (0.0, SLOW, 0.0, SLOW, 0.0, 0.0, 0.0)
"""Of the seven sites of `even`: two have slow lines, of the others nothing is said."""


@pytest.fixture(scope="module")
def network(even):
    return mlp(even.task, hidden=(64,))


def by_line(**more):
    return auto(megabits=WHOLE, lines=LINES, seconds=SECONDS, smallest=8, **more)


def test_every_site_is_sent_what_its_own_line_carries(even, network):
    """Told by tracing, as the simulation's records are."""
    algorithm, shapes, found = fed_avg(network, weighted_mean(), batch_size=16), jax.eval_shape(network.init, KEY), {}
    for speed in (WHOLE, SLOW):
        with Simulation(even, transform=auto(megabits=speed, seconds=SECONDS, smallest=8)) as engine:
            found[speed] = engine.message_bytes(algorithm, engine.first_shapes(algorithm, shapes))
    assert max(found[SLOW]) <= 1000 < min(found[WHOLE])
    with Simulation(even, transform=by_line()) as engine:
        way, progress = tailored(algorithm, engine.transform), engine.first_shapes(algorithm, shapes)
        kinds = way.tailoring.kind_of(np.arange(7))
        assert kinds.tolist() == [0, 1, 0, 1, 0, 0, 0]
        ways = [round_traffic(way, engine.transform, progress, row_of(even.task), kind) for kind in (0, 1)]
        assert [(one.bytes_down, one.bytes_up) for one in ways] == [found[WHOLE], found[SLOW]]
        assert engine.message_bytes(algorithm, progress) == found[WHOLE]
    slow, fast = choices_of_round({0: ways[0].choices, 1: ways[1].choices}, kinds, even.sites, np.arange(7))["lines"]
    assert (fast["down"], fast["up"], fast["count"]) == ("none", "none", 5)
    assert slow["sites"] == ["site-1", "site-3"]
    assert {slow["down"], slow["up"]} <= {"conservative", "moderate", "aggressive"}
    # A round in which only fast ones take part tells one choice.
    assert choices_of_round({0: ways[0].choices, 1: ways[1].choices}, kinds, even.sites, np.array([0, 2])) == {
        "down": "none", "up": "none",
    }  # fmt: skip


def test_where_all_lines_are_alike_it_is_one_choice_for_all():
    alike = auto(megabits=2.0, lines=(0.0, 2.0, 0.0))
    assert alike.tailoring is None
    assert alike.words == auto(megabits=2.0).words


@pytest.mark.slow
def test_sites_with_fast_lines_learn_as_without_compression(even, network):
    """A round of the fast ones alone: nothing of it depends on the slow ones' lines."""
    algorithm, params, rounds = fed_avg(network, weighted_mean(), batch_size=16), network.init(KEY), [0, 2, 4]
    after = []
    for transform in (None, by_line()):
        with Simulation(even, transform=transform) as engine:
            progress, _ = engine.train(algorithm, engine.begin(algorithm, params), [(1, np.array(rounds))])
            after.append(jax.device_get(algorithm.params(progress.server)))
    for name in params:
        np.testing.assert_allclose(after[0][name], after[1][name], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [
    lambda network: fed_avg(network, weighted_mean(), batch_size=16),
    lambda network: fed_avg(network, median(), batch_size=16),
    lambda network: federated_dropout(network, weighted_mean(), width=0.5, batch_size=16),
], ids=["fed_avg", "median", "dropout"])  # fmt: skip
def test_real_sites_of_two_lines_learn_what_the_simulation_learns(make, even, network):
    params, transform = network.init(KEY), by_line()
    algorithm = tailored(make(network), transform)
    (theirs, _), (ours, _, _) = (way(algorithm, transform, even, params, False) for way in (simulated, deployed))
    for name, array in algorithm.params(theirs.server).items():
        np.testing.assert_allclose(array, algorithm.params(ours.server)[name], atol=1e-4)


def test_lines_that_cannot_be_are_refused(even, network, tmp_path, capsys):
    algorithm = fed_avg(network, weighted_mean())
    with (
        pytest.raises(Refusal, match=r"[Ll]ines has 2 numbers, and there are 7 sites"),
        Simulation(even, transform=auto(lines=(1.0, 2.0))) as engine,
    ):
        engine.begin(algorithm, network.init(KEY))
    with pytest.raises(Refusal, match="followed by a transform that hides single answers"):
        chain([by_line(), secure_sum()])
    with pytest.raises(Refusal, match="carries something from round to round"):
        chain([top_k(), by_line()])
    with pytest.raises(Refusal, match=r"[Tt]wo transforms choose by the sites' lines"):
        chain([by_line(), by_line()])
    for lines, told in (
        ({"Bo": 0.5}, "no site called 'Bo'"),
        ({"bo": 0}, "'bo' must have a number greater than 0"),
        ({"bo": 1e-9}, "takes longer than 60 seconds over a line of 1e-09 megabits"),
        ([1.0, -2.0, 3.0, 4.0], "'lines' must not be below 0"),
    ):
        path = tiny.write_study(tmp_path, transforms=[{"name": "auto", "lines": lines}])
        said = tiny.call(capsys, "run", path, "--out", tmp_path / "out")
        assert said.code == 2
        assert told in " ".join(said.err.split())
        assert not list((tmp_path / "out").glob("*"))  # before anything is written


@pytest.mark.parametrize("mark", ["line/2", "line/-1", "line/x", "line/", "choice/zip", "choice/"])
def test_an_unknown_mark_is_refused(mark):
    """Sites and coordinator refuse it before, since no approved message has such an array; so does any other reader."""
    link = auto(megabits=WHOLE, lines=LINES, seconds=170_000.0)
    message = Message({**MESSAGE.arrays, mark: jnp.zeros(0)})
    if mark.startswith("line"):
        acts = [lambda: link.up(message, MESSAGE, KEY), lambda: link.down((), message, KEY)]
    else:
        acts = [lambda: link.receive(message), lambda: link.release((), message)]
    for act in acts:
        with pytest.raises(Refusal, match=r"marked for the (line|compression) '.*', and the study has"):
            act()


def test_notes_name_the_sites_of_each_line():
    """Other sites may take part in another round; of too many to name the number is told."""

    def record(*lines):
        return {"measures": {"compression": {"lines": list(lines)}}}

    def line(down, *sites, count=0):
        return {"down": down, "up": "aggressive", "count": count or len(sites), "sites": list(sites)}

    notes = compression_notes([record(line("none", "bo"), line("moderate", "makeni")), record(line("none", "kenema"))])
    assert notes == [
        "Compression chosen for each site's line: none to and aggressive from bo, kenema; moderate to and aggressive "
        "from makeni."
    ]
    many = compression_notes([record(line("none", count=300), line("moderate", "makeni"))])
    assert "from 300 sites; moderate" in many[0]


@pytest.mark.slow
def test_the_result_names_the_sites_of_each_line(tmp_path, capsys):
    lines = {"bo": SLOW, "makeni": SLOW}
    words = [{"name": "auto", "megabits": 1.0, "lines": lines, "seconds": SECONDS, "smallest": 8}]
    path = tiny.write_study(tmp_path, model={"name": "mlp", "hidden": [64]}, transforms=words)
    said = tiny.call(capsys, "run", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    told = (tmp_path / "out" / "result.json").read_text()
    assert "Compression chosen for each site's line: " in told
    assert "none to and none from freetown, kenema" in told
    assert "from bo, makeni" in told
