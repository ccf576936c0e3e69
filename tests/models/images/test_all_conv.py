"""The all-convolutional network: its size by hand, the same network of Flax's own layers, its parts, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.sub_models import cut_out, unit_counts
from wardround.models.images.all_conv import all_conv

PICTURES = Task((32, 32, 3), tuple("0123456789"))


def sizes_of(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def test_parameters_by_hand():
    # 3 x 3: 3 to 96, twice 96 to 96, 96 to 192, three times 192 to 192; 1 x 1: 192 to 192, 192 to 10; biases.
    weights = 9 * (3 * 96 + 2 * 96**2 + 96 * 192 + 3 * 192**2) + 192**2 + 192 * 10
    assert weights + 3 * 96 + 5 * 192 + 10 == 1_369_738
    assert sum(array.size for array in sizes_of(all_conv(PICTURES)).values()) == 1_369_738


def test_it_is_the_network_of_flax_layers():
    class Plain(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = 4 * x - 2  # intensities from 0 to 1 as numbers around 0
            for index in range(9):
                features, size = (2 if index < 3 else 4) if index < 8 else 3, 3 if index < 7 else 1
                strides = 2 if index in (2, 5) else 1
                x = nn.Conv(features, (size, size), strides=strides, name=f"conv_{index}")(x)
                x = nn.relu(x) if index < 8 else x
            return jax.nn.softmax(x.mean(axis=(1, 2)))

    model = all_conv(Task((6, 5, 1), tuple("abc")), filters=2)
    generator = np.random.default_rng(0)
    params = {name: generator.normal(0, 0.5, leaf.shape).astype(np.float32) for name, leaf in sizes_of(model).items()}
    x = generator.uniform(size=(2, 6, 5, 1)).astype(np.float32)
    nested = {f"conv_{i}": {part: params[f"conv_{i}/{part}"] for part in ("kernel", "bias")} for i in range(9)}
    np.testing.assert_allclose(model.predict(params, x), Plain().apply({"params": nested}, x), rtol=2e-4, atol=1e-6)


def test_a_part_keeps_inputs_and_classes():
    model = all_conv(PICTURES, filters=8)
    shapes = sizes_of(model)
    counts = unit_counts(model.units, shapes)
    assert counts == {f"conv_{i}": 8 if i < 3 else 16 for i in range(8)}
    half = {layer: jnp.arange(count // 2) for layer, count in counts.items()}
    part = jax.eval_shape(lambda given: cut_out(model.units, given, half), shapes)
    assert {name: part[name].shape for name in ("conv_0/kernel", "conv_3/kernel", "conv_8/kernel", "conv_8/bias")} == {
        "conv_0/kernel": (3, 3, 3, 4),
        "conv_3/kernel": (3, 3, 4, 8),
        "conv_8/kernel": (1, 1, 8, 10),
        "conv_8/bias": (10,),
    }
    x = jax.ShapeDtypeStruct((2, 32, 32, 3), np.uint8)
    assert jax.eval_shape(model.predict, part, x).shape == (2, 10)


def test_rows_of_numbers_are_refused():
    with pytest.raises(Refusal, match="needs images"):
        all_conv(Task((6,), tuple("ab")))
