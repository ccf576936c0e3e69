"""Rows come in the order of their visit, the same however they are stored and cut, and never past memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Model
from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.feed import Feed, aligned_zeros, replicate, shard_over_devices, split_by_device, to_host
from wardround.engine.layout import Shape
from wardround.engine.program import gather_rows
from wardround.engine.simulate import Simulation

EVERYONE = np.arange(7)


def test_a_site_finds_its_training_rows_and_no_others(ragged: Federation) -> None:
    """Site 5 has 64 training rows; in the round they lie in its lane in the order of its visit, twice."""
    feed = Feed(ragged, Shape(1, 1, 2, 4), seed=3, passes=2, padding=8)
    ((_, _, seating, (source, _)),) = list(feed.pieces([(9, EVERYONE)]))
    data = jax.tree.map(np.asarray, gather_rows(source, seating.table[0]))
    first, count = ragged.part("train")
    order = visiting_order(3, 9, np.array([5]), np.array([64]), 2)
    ((device, block, lane),) = np.argwhere(seating.site == 5).tolist()
    for visit in (0, 1):
        begin = seating.first[device, block] + visit * seating.longest[device, block]
        here = data.x[begin : begin + 64, lane]
        assert np.array_equal(here, ragged.x[first[5] + order[visit]])
        assert np.array_equal(data.y[begin : begin + 64, lane], ragged.y[first[5] + order[visit]])
        assert sorted(map(tuple, here.tolist())) == sorted(map(tuple, ragged.x[first[5] : first[5] + 64].tolist()))
    assert count[5] == 64
    assert len(data.x) >= seating.first[device, block] + 2 * seating.longest[device, block] + 8


def test_rounds_come_in_order_and_the_capacity_never_shrinks(ragged: Federation) -> None:
    feed = Feed(ragged, Shape(1, 1, 2, 4), seed=3, passes=1, padding=8)
    rounds = [(1, EVERYONE), (2, np.array([1])), (3, np.array([4, 6])), (4, EVERYONE)]
    got = [(number, piece, seating.table.shape[1]) for number, piece, seating, _ in feed.pieces(rounds)]
    assert [number for number, _, _ in got] == [1, 2, 3, 4]
    assert {piece for _, piece, _ in got} == {0}
    assert len({capacity for _, _, capacity in got}) == 1, "another shape would be compiled anew"


def trained(federation: Federation, model: Model, algorithm: Any) -> Any:
    with Simulation(federation, seed=3, device_count=1) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        # Rounds enough that every place in memory is written again while others are read.
        cohorts = [EVERYONE if number % 3 else np.array([0, 3, 5]) for number in range(1, 13)]
        progress, _ = engine.train(algorithm, progress, list(enumerate(cohorts, start=1)))
        return jax.device_get(progress.server)


def test_rows_on_disk_and_in_pieces_train_the_same_model(
    ragged: Federation, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    in_memory = trained(ragged, model, algorithm)
    np.save(tmp_path / "x.npy", ragged.x)
    mapped = replace(ragged, x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    on_disk = trained(mapped, model, algorithm)
    assert all(map(np.array_equal, jax.tree.leaves(in_memory), jax.tree.leaves(on_disk)))
    # Lanes of one or two sites and 100 bytes a piece: the sums are added in another order, no more.
    monkeypatch.setattr("wardround.engine.layout.MOST_LANES", 2)
    monkeypatch.setattr("wardround.engine.layout.PIECE_BYTES", 100)
    with Simulation(mapped, seed=3, device_count=1) as engine:
        assert engine.shape(algorithm, model.init(jax.random.key(0))).pieces > 1
    in_pieces = trained(mapped, model, algorithm)
    for one, two in zip(jax.tree.leaves(in_memory), jax.tree.leaves(in_pieces), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_arrays_are_spread_out_copied_everywhere_and_brought_back() -> None:
    tree = {"a": np.arange(8, dtype=np.float32).reshape(2, 4)}
    split, whole = shard_over_devices(tree, 2), replicate(tree, 2)
    assert [shard.data.shape for shard in split["a"].addressable_shards] == [(1, 4)] * 2
    assert [shard.data.shape for shard in whole["a"].addressable_shards] == [(2, 4)] * 2
    assert np.array_equal(to_host(split["a"]), tree["a"])
    parts = split_by_device(split)
    assert [part["a"].tolist() for part in parts] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    assert all(part["a"].devices() == {jax.local_devices()[0]} for part in parts)


def test_aligned_memory_is_handed_over_without_a_copy() -> None:
    rows = aligned_zeros((100, 7), np.float32)
    assert rows.ctypes.data % 64 == 0
    assert not rows.any()
    handed = replicate(rows, 1)
    assert handed.unsafe_buffer_pointer() == rows.ctypes.data
