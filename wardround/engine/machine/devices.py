"""Which devices a simulation runs on: on a CPU one device a core, so that blocks of sites run side by side."""

import os
from contextlib import suppress
from functools import cache

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "sites"


def prepare() -> None:
    """Ask for one CPU device a core; without effect where JAX has started already or was told otherwise."""
    is_set = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if is_set or getattr(jax.config, "jax_num_cpu_devices", -1) > 0:
        return
    with suppress(RuntimeError):  # JAX runs already, with the devices it has
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


@cache
def mesh(count: int) -> Mesh:
    """The first `count` devices (of all hosts) as one axis of sites."""
    return Mesh(np.array(jax.devices()[:count]), (AXIS,))


@cache
def sharding(count: int, *, split: bool) -> NamedSharding:
    """Where an array lies: split over the devices along its first axis, or whole on each."""
    return NamedSharding(mesh(count), PartitionSpec(AXIS) if split else PartitionSpec())


def device_count() -> int:
    """Devices over all hosts of this run."""
    return jax.device_count()


# At import, since JAX fixes its devices when it first computes anything.
prepare()
