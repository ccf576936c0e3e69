"""A recurrent network that predicts what follows a sequence of tokens: LEAF's model for Shakespeare.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018 (appendix: an embedding of 8 numbers a character, two
LSTM layers of 256 units, the output scored against every token, softmax). Needs rows of token numbers, from 0 to below
`vocabulary` (by default as many as there are classes). Layers are embed, lstm_0, lstm_1, ..., dense_0. The gates of a
layer stand side by side in one matrix (input, forget, cell, output), so that a step is one product; the inputs of all
steps are multiplied at once, before the loop. Costs the length of a sequence in steps that follow each other.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from wardround.core.bounds import Count, CountOrAll, NotNegative
from wardround.core.contracts import Array, Model, Params, Task, Units
from wardround.core.errors import Refusal
from wardround.models.from_flax import Widths, from_flax, loss_for


class Recurrence(nn.Module):  # type: ignore[misc]
    """One LSTM layer: (rows, steps, inputs) to (rows, steps, units). The forget gate's bias begins at 1."""

    units: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        rows, _, inputs = x.shape
        start = nn.initializers.lecun_normal()
        weights = self.param("input", start, (inputs, 4 * self.units), jnp.float32)
        again = self.param("hidden", start, (self.units, 4 * self.units), jnp.float32)
        forget = jnp.zeros((4, self.units)).at[1].set(1.0).reshape(-1)
        bias = self.param("bias", lambda key, shape, dtype: forget.astype(dtype), (4 * self.units,), jnp.float32)

        def step(carry: tuple[jax.Array, jax.Array], given: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            cell, hidden = carry
            gates = given + hidden @ again
            inward, kept, new, outward = (gates[:, n * self.units : (n + 1) * self.units] for n in range(4))
            cell = jax.nn.sigmoid(kept) * cell + jax.nn.sigmoid(inward) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(outward) * jnp.tanh(cell)
            return (cell, hidden), hidden

        begin = jnp.zeros((rows, self.units))
        given = jnp.swapaxes(x @ weights + bias, 0, 1)
        _, outputs = jax.lax.scan(step, (begin, begin), given)
        return jnp.swapaxes(outputs, 0, 1)


class NextToken(nn.Module):  # type: ignore[misc]
    """An embedding, LSTM layers, and a score for every class from the last step."""

    vocabulary: int
    embedding: int
    hidden: tuple[int, ...]
    outputs: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        tokens = jnp.clip(x.reshape(x.shape[0], -1).astype(jnp.int32), 0, self.vocabulary - 1)
        found = nn.Embed(self.vocabulary, self.embedding, name="embed")(tokens)
        for index, units in enumerate(self.hidden):
            found = Recurrence(units, name=f"lstm_{index}")(found)
        result: Array = nn.Dense(self.outputs, name="dense_0")(found[:, -1])
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
