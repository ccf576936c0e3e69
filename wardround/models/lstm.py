"""A recurrent network that predicts what follows a sequence of tokens: LEAF's model for Shakespeare.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018 (appendix: an embedding of 8 numbers a character, two
LSTM layers of 256 units, the output scored against every token, softmax). Needs rows of token numbers, from 0 to below
`vocabulary` (by default as many as there are classes). Layers are embed, lstm_0, lstm_1, ..., dense_0. The gates of a
layer stand side by side in one matrix (input, forget, cell, output), so that a step is one product; the inputs of all
steps are multiplied at once, before the loop, and on the way back the gradient of the weights is one product after it.
Costs the length of a sequence in steps that follow each other.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from wardround.core.bounds import Count, CountOrAll, NotNegative
from wardround.core.contracts import Array, Model, Params, Task, Units
from wardround.core.errors import Refusal
from wardround.models.from_flax import Widths, from_flax, loss_for
from wardround.models.products import multiply


@jax.custom_vjp
def recur(given: jax.Array, again: jax.Array) -> jax.Array:
    """(steps, rows, 4 units), the inputs' share of the gates, to what is shown after each step, (steps, rows, units).

    Automatic differentiation would add up the gradient of `again` step by step, the whole matrix in every one, and turn
    that matrix around in every one.
    """
    return _go(given, again)[0]


def _go(given: jax.Array, again: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    begin = jnp.zeros((given.shape[1], again.shape[0]), given.dtype)
    # A sigmoid is half a tanh of half its input, plus a half: so all gates are one piece of work.
    half = jnp.repeat(jnp.array([0.5, 0.5, 1.0, 0.5], given.dtype), again.shape[0])

    def step(
        carry: tuple[jax.Array, jax.Array], own: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
        before, hidden = carry
        gates = half * jnp.tanh(half * (own + hidden @ again)) + (1 - half)
        inward, kept, new, outward = jnp.split(gates, 4, axis=-1)
        cell = kept * before + inward * new
        bounded = jnp.tanh(cell)
        shown = outward * bounded
        return (cell, shown), (shown, gates, before, bounded)

    _, (shown, *seen) = jax.lax.scan(step, (begin, begin), given)
    return shown, (again, shown, *seen)


def _return(seen: tuple[jax.Array, ...], slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    again, shown, *kept_in_mind = seen
    # Turned once, behind a barrier: else the compiler would turn it in every step.
    turned = jax.lax.optimization_barrier(again.T)
    nothing = jnp.zeros_like(slope[0])

    def step(
        carry: tuple[jax.Array, jax.Array], own: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        to_cell, to_hidden = carry
        here, gates, before, bounded = own
        inward, kept, new, outward = jnp.split(gates, 4, axis=-1)
        to_shown = to_hidden + here
        to_cell = to_cell + to_shown * outward * (1 - bounded * bounded)
        to_gates = jnp.concatenate(
            [
                to_cell * new * inward * (1 - inward),
                to_cell * before * kept * (1 - kept),
                to_cell * inward * (1 - new * new),
                to_shown * bounded * outward * (1 - outward),
            ],
            axis=-1,
        )
        return (to_cell * kept, to_gates @ turned), to_gates

    _, to_gates = jax.lax.scan(step, (nothing, nothing), (slope, *kept_in_mind), reverse=True)
    # Nothing was shown before the first step.
    before, after = (part.reshape(-1, part.shape[-1]) for part in (shown[:-1], to_gates[1:]))
    return to_gates, jax.lax.optimization_barrier(before.T) @ after  # turned beforehand, as in `products`


recur.defvjp(_go, _return)


class Recurrence(nn.Module):  # type: ignore[misc]
    """One LSTM layer: (steps, rows, inputs) to (steps, rows, units). The forget gate's bias begins at 1."""

    units: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        inputs = x.shape[-1]
        start = nn.initializers.lecun_normal()
        weights = self.param("input", start, (inputs, 4 * self.units), jnp.float32)
        again = self.param("hidden", start, (self.units, 4 * self.units), jnp.float32)
        forget = jnp.zeros((4, self.units)).at[1].set(1.0).reshape(-1)
        bias = self.param("bias", lambda key, shape, dtype: forget.astype(dtype), (4 * self.units,), jnp.float32)

        given = multiply(x.reshape(-1, inputs), weights).reshape(*x.shape[:2], -1) + bias
        return recur(given, again)


class NextToken(nn.Module):  # type: ignore[misc]
    """An embedding, LSTM layers, and a score for every class from the last step."""

    vocabulary: int
    embedding: int
    hidden: tuple[int, ...]
    outputs: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        tokens = jnp.clip(x.reshape(x.shape[0], -1).astype(jnp.int32), 0, self.vocabulary - 1)
        # Steps first, from here to the end: no layer need turn what it is given.
        found = nn.Embed(self.vocabulary, self.embedding, name="embed")(tokens.T)
        for index, units in enumerate(self.hidden):
            found = Recurrence(units, name=f"lstm_{index}")(found)
        result: Array = nn.Dense(self.outputs, name="dense_0")(found[-1])
        return result


def lstm(
    task: Task,
    *,
    hidden: tuple[int, ...] = (256, 256),
    embedding: Count = 8,
    vocabulary: CountOrAll = 0,
    l2: NotNegative = 0.0,
) -> Model:
    """A recurrent network for sequences of tokens (hidden: units of its LSTM layers; vocabulary 0: one a class)."""
    if not hidden or any(units < 1 for units in hidden):
        raise Refusal(
            f"an LSTM needs layers of at least one unit, but hidden is {list(hidden)}",
            where="model lstm",
            remedy="give widths of 1 or more, such as hidden = [256, 256]",
        )
    if len(task.shape) != 1:
        raise Refusal(
            f"an LSTM needs rows of tokens, but a row has shape {task.shape}",
            where=f"target {task.target!r}",
            remedy="take the model 'cnn' for images",
        )
    known = vocabulary or task.outputs

    def module(params: Params) -> NextToken:
        widths = tuple(params[f"lstm_{index}/hidden"].shape[-2] for index in range(len(hidden)))
        return NextToken(known, embedding, widths, task.outputs)

    whole = NextToken(known, embedding, tuple(hidden), task.outputs)
    return from_flax(whole, loss_for(task), task, l2=l2, widths=Widths(units_of(len(hidden)), module))


def units_of(layers: int) -> Units:
    """The units of the LSTM layers; a matrix of gates holds them four times."""
    found: list[tuple[str, tuple[str, ...]]] = [("embed/embedding", ("", ""))]
    before = ""
    for index in range(layers):
        own = f"lstm_{index}"
        found += [(f"{own}/input", (before, own)), (f"{own}/hidden", (own, own)), (f"{own}/bias", (own,))]
        before = own
    return (*found, ("dense_0/kernel", (before, "")), ("dense_0/bias", ("",)))
