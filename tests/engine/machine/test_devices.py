"""One CPU device a core, unless JAX was told otherwise."""

import os
import subprocess
import sys

import jax
import pytest

from wardround.engine.machine import devices

COUNT = "import wardround.engine.machine.devices as d; print(d.device_count())"


def counted(code: str, **environment: str) -> int:
    told = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**told, **environment}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("code", "environment", "expected"),
    [
        (COUNT, {}, len(os.sched_getaffinity(0))),
        (COUNT, {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3),
        ("import jax; jax.config.update('jax_num_cpu_devices', 3); " + COUNT, {}, 3),
        ("import jax; jax.numpy.zeros(1); " + COUNT, {}, 1),
    ],
    ids=["a core each", "told by a flag", "told by the program", "too late"],
)
def test_how_many_devices_there_are(code: str, environment: dict[str, str], expected: int) -> None:
    assert counted(code, **environment) == expected


def test_the_sites_lie_along_one_axis() -> None:
    mesh = devices.mesh(2)
    assert mesh.axis_names == (devices.AXIS,)
    assert mesh.devices.tolist() == jax.devices()[:2]
    assert devices.mesh(2) is mesh


def test_an_array_is_split_along_its_first_axis_or_lies_whole_on_each() -> None:
    array = jax.numpy.arange(8).reshape(4, 2)
    split = jax.device_put(array, devices.sharding(2, split=True))
    whole = jax.device_put(array, devices.sharding(2, split=False))
    assert [shard.data.tolist() for shard in split.addressable_shards] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert [shard.data.tolist() for shard in whole.addressable_shards] == [array.tolist()] * 2
