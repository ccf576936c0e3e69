"""Several hosts as one machine: every host runs the same command and computes its share of the sites."""

from dataclasses import dataclass

import jax

from wardround.core.errors import Refusal


@dataclass(frozen=True)
class Hosts:
    """How many hosts there are, which of them this is (from 0), and where the first one listens (address:port)."""

    count: int
    number: int
    coordinator: str


def join(hosts: Hosts) -> None:
    """Connect to the other hosts; must come before JAX computes anything."""
    if not 0 <= hosts.number < hosts.count:
        raise Refusal(
            f"there is no host {hosts.number} among {hosts.count} hosts",
            where="--host",
            remedy=f"number them 0 to {hosts.count - 1}",
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(hosts.coordinator, hosts.count, hosts.number, initialization_timeout=60)
    except RuntimeError as error:
        raise Refusal(
            f"the hosts could not connect to each other: {str(error).splitlines()[0]}",
            where=hosts.coordinator,
            remedy="start the same command on every host within a minute, with the address of host 0",
        ) from None


def is_leader() -> bool:
    """Whether this host writes results and talks to the user."""
    return jax.process_index() == 0
