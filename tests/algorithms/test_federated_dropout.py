"""Federated dropout: FedAvg at width 1, merging by hand, bytes by arithmetic, over real sites, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.conftest import TASK
from tests.contracts.test_halves import check
from tests.deploy.coordinator.test_run_study import simulated
from tests.support.in_process import NAMES, Consortium, study_of
from tests.support.tiny_study import call, write_study
from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import choose_units, federated_dropout
from wardround.core.chain import identity
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.trees import nbytes
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import initial_progress, message_of_round, row_of
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.privacy.site_level import site_level
from wardround.transforms.secure_sum import secure_sum
from wardround.transforms.top_k import top_k

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def network(model):
    return mlp(TASK, hidden=(8, 4))


@pytest.fixture(scope="module")
def first(network):
    return network.init(jax.random.key(0))


@pytest.fixture(scope="module")
def mixed(network):
    """Seven sites of which two train the whole model and five a half."""
    return federated_dropout(network, weighted_mean(), width=0.5, widths=(1.0, 0.5, 0.0, 0.5, 0.5, 0.5, 1.0))


def trained(algorithm, federation, network, sites=7, rounds=(1, 2), transform=None):
    with Simulation(federation, seed=3, transform=transform, device_count=1) as engine:
        progress = engine.begin(algorithm, network.init(jax.random.key(0)))
        progress, records = engine.train(algorithm, progress, [(number, np.arange(sites)) for number in rounds])
        return jax.device_get(algorithm.params(progress.server)), records


@pytest.mark.parametrize(
    ("selection", "merge"),
    [("random", "holders"), ("random", "zeros"), ("rolling", "holders")],
)
def test_width_1_is_fed_avg_to_the_bit(selection, merge, ragged, network):
    algorithm = federated_dropout(network, weighted_mean(), width=1.0, selection=selection, merge=merge)
    (ours, records), (theirs, plain) = (
        trained(one, ragged, network) for one in (algorithm, fed_avg(network, weighted_mean()))
    )
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)
    assert [one.bytes_down for one in records] == [one.bytes_down for one in plain]


def test_merging_two_sites_by_hand(network):
    """One site, weight 1, holds all units; the other, weight 3, the first half of each layer (ordered)."""
    algorithm = federated_dropout(network, weighted_mean(), widths=(1.0, 0.5), selection="ordered")
    zeros = federated_dropout(network, weighted_mean(), widths=(1.0, 0.5), selection="ordered", merge="zeros")
    params = jax.tree.map(jnp.zeros_like, network.init(jax.random.key(0)))
    tailoring = algorithm.tailoring
    whole, half = (int(kind) for kind in tailoring.kind_of(np.arange(2)))
    expected = {"holders": (2.0, (2 + 3 * 6) / 4), "zeros": (2 / 4, (2 + 3 * 6) / 4)}
    for one, (alone, both) in ((algorithm, expected["holders"]), (zeros, expected["zeros"])):
        state = one.init(params, 2)
        said, key = one.broadcast(state), jax.random.key(0)
        answers = []
        for kind, update, weight in ((whole, 2.0, 1.0), (half, 6.0, 3.0)):
            cut = one.tailoring.cut(said, kind, jnp.int32(0), key)
            assert "turn" not in cut.arrays
            moved = jax.tree.map(lambda a, by=update * weight: jnp.full(a.shape, by), cut.arrays["params"])
            answer = Message({"update": moved, "weight": jnp.float32(weight)})
            answers.append(one.tailoring.fit(said, answer, kind, jnp.int32(0), key))
        total = jax.tree.map(lambda p, q: p + q, *answers)
        after = one.params(one.server(state, weighted_mean().reduce((), total)[0]))
        # Units 0 to 3 of 8 are held by both, so their bias moves by the weighted mean (1 * 2 + 3 * 6) / 4 = 5. The
        # others are the first site's: 2 by holders, 1 * 2 / 4 where the other's zero counts.
        np.testing.assert_allclose(after["dense_0/bias"], [both] * 4 + [alone] * 4)
        np.testing.assert_allclose(after["dense_1/kernel"][:4, :2], both)
        np.testing.assert_allclose(after["dense_1/kernel"][4:, :2], alone)  # shrunk inputs
        np.testing.assert_allclose(after["dense_1/kernel"][:4, 2:], alone)
        np.testing.assert_allclose(after["dense_2/bias"], both)  # logits are everybody's


def test_bytes_are_those_of_the_smaller_arrays(even, ragged, network, first, mixed):
    # 3 inputs, layers of 8 and 4, two classes. Whole: 3*8+8 + 8*4+4 + 4*2+2 = 78 numbers. Half: 3*4+4 + 4*2+2 + 2*2+2
    # = 32. A quarter (2 and 1 units): 3*2+2 + 2*1+1 + 1*2+2 = 15. Up there is one number more, the weight.
    with Simulation(even, seed=3) as engine:
        for width, numbers in ((0.5, 32), (0.25, 15)):
            algorithm = federated_dropout(network, weighted_mean(), width=width)
            assert engine.message_bytes(algorithm, engine.begin(algorithm, first)) == (4 * numbers, 4 * (numbers + 1))
    _, (one,) = trained(mixed, ragged, network, rounds=(1,))
    numbers = 2 * 78 + 5 * 32
    assert (one.bytes_down, one.bytes_up) == (4 * numbers, 4 * (numbers + 7))


@pytest.mark.slow
def test_one_site_with_every_unit_learns_as_alone(make_federation, network):
    """It holds all, so what it learned is the model; the others' zero rows count nothing."""
    alone = make_federation([48, 0, 0])
    algorithm = federated_dropout(network, weighted_mean(), widths=(1.0, 0.5, 0.5))
    ours, _ = trained(algorithm, alone, network, sites=3)
    theirs, _ = trained(fed_avg(network, weighted_mean()), alone, network, sites=3)
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-7)


def test_real_sites_of_two_widths_learn_what_the_simulation_learns(ragged, first, mixed):
    check(mixed, identity(), ragged, first)


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["random", "ordered", "rolling"])
def test_real_sites_of_four_widths_learn_what_the_simulation_learns(selection, ragged, network, first):
    widths = (1.0, 0.5, 0.5, 0.25, 0.25, 0.0, 0.5)
    algorithm = federated_dropout(network, weighted_mean(), width=0.75, widths=widths, selection=selection)
    check(algorithm, identity(), ragged, first)


def test_every_site_of_a_round_gets_a_sub_model_of_its_own(network):
    algorithm = federated_dropout(network, weighted_mean(), width=0.5)
    params = network.init(jax.random.key(0))
    progress = initial_progress(algorithm, identity(), params, 5, row_of(TASK))
    sent = [
        message_of_round(algorithm, identity(), progress, seed=1, number=number, site=site).arrays["params"]
        for number, site in ((1, 0), (1, 1), (2, 0), (1, 0))
    ]
    assert {one["dense_0/bias"].shape for one in sent} == {(4,)}
    kernels = [one["dense_0/kernel"] for one in sent]
    assert not np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[0], kernels[2])
    np.testing.assert_array_equal(kernels[0], kernels[3])


def test_units_are_chosen_as_their_papers_say():
    turn = jnp.arange(9)
    ordered = choose_units("ordered", 8, 3, turn[5], None, 0)
    np.testing.assert_array_equal(ordered, [0, 1, 2])
    # A window of 3 of 8 units that moves by one a round and goes round: rounds 1, 7 and 9.
    rolling = [choose_units("rolling", 8, 3, turn[at], None, 0).tolist() for at in (0, 6, 8)]
    assert rolling == [[0, 1, 2], [6, 7, 0], [0, 1, 2]]
    draw = jax.jit(jax.vmap(lambda key: choose_units("random", 8, 3, turn[0], key, 0)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    assert (np.diff(drawn, axis=1) > 0).all()  # three different units
    # Each is drawn with probability 3/8: 1500 of 4000 times, standard deviation 31.
    assert np.abs(np.bincount(drawn.ravel(), minlength=8) - 1500).max() < 5 * 31


def test_rescaled_parts_are_sent_larger_and_their_updates_are_added_as_they_are(network, first):
    # 4 of 8 and 2 of 4 units: what comes from them counts twice; the first layer's inputs are all there.
    plain, doubled = (
        federated_dropout(network, weighted_mean(), width=0.5, selection="ordered", rescale=rescale)
        for rescale in (False, True)
    )
    state = plain.init(first, 1)
    whole, larger = (one.broadcast(state).arrays["params"] for one in (plain, doubled))
    for name, array in whole.items():
        times = 2.0 if name in ("dense_1/kernel", "dense_2/kernel") else 1.0
        np.testing.assert_array_equal(larger[name], times * array)
    update = jax.tree.map(jnp.ones_like, whole)
    after = [one.server(state, Message({"update": update})) for one in (plain, doubled)]
    jax.tree.map(np.testing.assert_array_equal, *after)
    # By the root where the spread is to stay: 2^(1/2) for 4 of 8 and 2 of 4 units.
    by_root = federated_dropout(
        network, weighted_mean(), width=0.5, selection="ordered", rescale=True, rescale_to="spread"
    )
    louder = by_root.broadcast(state).arrays["params"]
    for name, array in whole.items():
        times = 2**0.5 if name in ("dense_1/kernel", "dense_2/kernel") else 1.0
        np.testing.assert_allclose(louder[name], times * array, rtol=1e-6)
    # Random parts are cut by the tailoring, by the same rule.
    drawn = federated_dropout(network, weighted_mean(), width=0.5, rescale=True)
    part = drawn.tailoring.cut(Message(dict(state)), 0, 0, jax.random.key(1)).arrays["params"]
    kernel = np.asarray(first["dense_2/kernel"])
    for line in np.asarray(part["dense_2/kernel"]):
        assert np.isclose(line, 2 * kernel).all(axis=1).any()


@pytest.mark.parametrize("selection", [pytest.param("ordered", marks=SLOW), "rolling"])
def test_a_part_that_all_hold_works_under_a_secure_sum(selection, even, network):
    algorithm = federated_dropout(network, weighted_mean(), width=0.5, selection=selection)
    plain, _ = trained(algorithm, even, network)
    hidden, _ = trained(algorithm, even, network, transform=secure_sum())
    for name, array in plain.items():
        np.testing.assert_allclose(hidden[name], array, atol=1e-4)
    site_level(algorithm, noise_multiplier=1.0, clip=1.0, sites=7, seeded=True)


def test_a_consortium_trains_the_simulations_model_and_its_rounds_can_be_replayed(tmp_path):
    consortium = Consortium(tmp_path)
    study = study_of(
        "dropout",
        2,
        model={"name": "mlp", "hidden": [8]},
        algorithm={"name": "federated_dropout", "width": 0.5, "widths": {"bo": 0.25}, "learning_rate": 0.1},
        deploy={"sites": list(NAMES)},
    )
    consortium.conduct(study)
    simulated(consortium, study)
    ours, theirs = (
        load_file(one / "model.safetensors") for one in (consortium.run(study), consortium.folder / "simulated")
    )
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)
    report = replay(read_source(consortium.run(study)))
    assert report.problem == ""
    assert report.replayed == 2
    # Bytes of arrays: each site's own sub-model and no other.
    inputs = theirs["dense_0/kernel"].shape[0]

    def message(units):
        return Message({"params": {
            "dense_0/kernel": np.zeros((inputs, units), np.float32), "dense_0/bias": np.zeros(units, np.float32),
            "dense_1/kernel": np.zeros((units, 2), np.float32), "dense_1/bias": np.zeros(2, np.float32),
        }})  # fmt: skip

    for one in consortium.rounds(study):
        assert one["measures"]["arrays"]["bytes_down"] == nbytes(message(2)) + 2 * nbytes(message(4))


def test_what_cannot_work_is_refused(network, even):
    mean = weighted_mean()
    for make, told in (
        (lambda: federated_dropout(logistic(TASK), mean), "no hidden units"),
        (lambda: federated_dropout(network, mean, width=0.1), "width of 0.1 leaves none of the 4 units of the layer"),
        (lambda: federated_dropout(network, mean, widths=(0.5, 1.5)), "at most 1"),
        (lambda: federated_dropout(network, median()), "weighted_mean"),
        (lambda: trained(federated_dropout(network, mean, widths=(0.5,)), even, network), "1 numbers, and there are 7"),
        (
            lambda: trained(federated_dropout(network, mean), even, network, transform=secure_sum()),
            "must be put in its place.*rolling",
        ),
        (
            lambda: trained(federated_dropout(network, mean), even, network, transform=top_k()),
            "did not send of one part.*quantize",
        ),
        (
            lambda: site_level(federated_dropout(network, mean), noise_multiplier=1, clip=1, sites=7, seeded=True),
            "too little of it",
        ),
    ):
        with pytest.raises(Refusal, match=told):
            make()


@pytest.mark.parametrize(
    ("widths", "told"),
    [
        ({"Bo": 0.5}, "no site called 'Bo'.*did you mean 'bo'"),
        ({"bo": "half"}, "'bo' must have a number greater than 0, not 'half'"),
        ({"bo": 0}, "'bo' must have a number greater than 0"),
        ({"bo": 0.01}, "leaves none of the 8 units"),
        ({"bo": 2}, "at most 1"),
    ],
    ids=["name", "word", "zero", "too narrow", "too wide"],
)
def test_widths_by_name_are_checked_before_anything_is_computed(widths, told, tmp_path, capsys):
    path = write_study(
        tmp_path, model={"name": "mlp", "hidden": [8]}, algorithm={"name": "federated_dropout", "widths": widths}
    )
    said = call(capsys, "check", path)
    assert said.code == 2
    assert re.search(told, " ".join(said.err.split()))
