"""Whether a study fits is told before it starts, in bytes that can be counted by hand."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.scaffold import scaffold
from wardround.core.contracts import Model
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine.layout import Shape
from wardround.engine.machine.memory import estimate, refuse_if_too_large

SHAPE = Shape(devices=2, pieces=1, blocks=3, lanes=4)
PARAMETERS = (3 * 2 + 2) * 4
"""Bytes of a logistic regression with three features and two classes."""


def free(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=available))


def test_bytes_by_hand(even: Federation, model: Model) -> None:
    """Seven sites of 48 + 16 + 16 rows of three 4-byte numbers, twice; 8 lanes train, 24 answers lie side by side."""
    params = model.init(jax.random.key(0))
    streaming, stacking = fed_avg(model, weighted_mean()), fed_avg(model, median())
    parts = estimate(streaming, params, (), even, SHAPE)
    assert parts["rows of all sites"] == 2 * 7 * (48 + 16 + 16) * 12
    assert parts["models in training"] % (PARAMETERS * 8) == 0
    assert parts["models in training"] >= 3 * PARAMETERS * 8, "model, gradient and update of every lane"
    assert parts["answers held side by side"] == 0
    assert parts["what sites keep between rounds"] == 0
    assert estimate(stacking, params, (), even, SHAPE)["answers held side by side"] >= PARAMETERS * 24
    keeping = scaffold(model, weighted_mean())
    kept = estimate(keeping, params, keeping.init_client(params), even, SHAPE)["what sites keep between rounds"]
    assert kept == 2 * 7 * PARAMETERS, "what was kept, and what will be"


def test_shapes_are_enough(even: Federation, model: Model) -> None:
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    algorithm = fed_avg(model, weighted_mean())
    assert estimate(algorithm, shapes, (), even, SHAPE) == estimate(
        algorithm, model.init(jax.random.key(0)), (), even, SHAPE
    )


def test_just_enough_is_enough_and_a_byte_less_is_not(
    even: Federation, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, params = fed_avg(model, median()), model.init(jax.random.key(0))
    needed = sum(estimate(algorithm, params, (), even, SHAPE).values())
    free(monkeypatch, needed)
    refuse_if_too_large(algorithm, params, (), even, SHAPE)
    free(monkeypatch, needed - 1)
    with pytest.raises(Refusal, match=f"{needed / 1e9:.1f} GB of memory"):
        refuse_if_too_large(algorithm, params, (), even, SHAPE)


def test_the_largest_part_is_named(even: Federation, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 2**30)
    shapes = {"dense": jax.ShapeDtypeStruct((10**9,), np.dtype(np.float32))}
    with pytest.raises(Refusal, match="for models in training"):
        refuse_if_too_large(fed_avg(model, weighted_mean()), shapes, (), even, SHAPE)
    with pytest.raises(Refusal, match="for what sites keep between rounds"):
        refuse_if_too_large(fed_avg(model, weighted_mean()), {}, shapes, even, SHAPE)


def test_rows_on_disk_take_no_memory(
    even: Federation, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", even.x)
    mapped = replace(even, x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    algorithm, params = fed_avg(model, weighted_mean()), model.init(jax.random.key(0))
    needed = sum(estimate(algorithm, params, (), even, SHAPE).values())
    free(monkeypatch, needed - 1)
    refuse_if_too_large(algorithm, params, (), mapped, SHAPE)
    with pytest.raises(Refusal):
        refuse_if_too_large(algorithm, params, (), even, SHAPE)
