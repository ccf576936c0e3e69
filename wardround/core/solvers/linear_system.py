"""Small systems of linear equations, one site after another.

jaxlib solves a batch of systems on the very threads that wait for it: with two cores, two batches under way at once
wait for each other for ever (seen at 5 sites and 178 coefficients). A system by itself is solved where it stands. So
sites that are mapped over are gone through one by one, which costs nothing that counts: a site's rows cost far more.
"""

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def solution(matrix: Array, values: Array) -> Array:
    """The x for which matrix times x is the values."""
    return jnp.linalg.solve(matrix, values)


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def inverse(matrix: Array) -> Array:
    return jnp.linalg.inv(matrix)
