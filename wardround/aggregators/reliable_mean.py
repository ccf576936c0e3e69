"""The mean of the answers of those sites that the server has learned to rely on; the others are left out.

After DeepSA (deep neural network based secure aggregation; Ma et al., "Federated Learning with Unreliable Clients:
Performance Analysis and Mechanism Design", IEEE Internet of Things Journal 2021): sum of z_i p_i w_i over the sites,
p_i the weight of a site and z_i 1 where it is reliable, else 0. There a network learns z_i from answers that the server
made itself from data of its own; here the server has no data, and learns z_i from the sites' answers over the rounds:

- An update of a layer is a sum of inputs times errors, and that of its bias the sum of the errors. What the mean input
  explains (the bias's update times the mean input, fitted over all sites) is taken off. What is left says which inputs
  go with which outputs: sites with other patients hardly touch each other in it (cosine about 0), sites with like
  patients agree, and a site that says the opposite of the same patients (wrong labels, a turned update) contradicts.
- Cosines are summed over the rounds in which both sites answered, long updates counting more. Each pair then says at
  most `LIMIT`, so that sites that repeat each other gain nothing by it.
- Who is reliable is the mean-field solution of two camps (an Ising model) in which the larger is the reliable one:
  agreement with a reliable site speaks for a site, contradiction against it, and for an unreliable one the other way.
- Among those, a site is left out whose updates are on average more than `longest` times as long as the median one, or
  less than a tenth. And of a round every answer is left out that is more than `at_once` times as long as the median one
  of reliable sites in this round (0: none): means over rounds let a site that turns bad late lie loudly for long.

Where sites differ much in size, large ones make more steps and longer updates: give both limits larger values there.
Fewer than half of the sites may be unreliable. Sites count by the weights they tell; let the algorithm weigh all alike
where that may be abused. `keep` below 1 forgets evidence, so that a site which turns bad late is noticed, at the price
of more good sites left out late in training, when their updates are small and disagree. Needs all answers at once and
remembers two numbers for every pair of sites; costs a product of the stack with itself.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from wardround.aggregators.majority_mean import median_of
from wardround.aggregators.stacks import Stack, as_matrix, close_stack, combine, content, open_stack
from wardround.core import trees
from wardround.core.bounds import NotNegative, Positive, Share
from wardround.core.contracts import Aggregator, Message, Tree
from wardround.core.errors import Refusal

LIMIT, BENEFIT, SHARPNESS, STEPS = 0.5, 0.3, 4.0, 40
"""What one pair can say at most, what speaks for everybody beforehand, and how the camps are found."""
SHORTEST = 0.1
MOST_SITES = 4096
"""Of more, the memory of all pairs would be larger than most models."""


def without_site(message: Message) -> Message:
    return Message({name: tree for name, tree in message.arrays.items() if name != "site"}, message.meta)


def without_mean_input(kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Kernels (sites, inputs, outputs) less the biases (sites, outputs) times the input that explains most of them."""
    square = jnp.sum(jnp.square(bias))
    mean_input = trees.divide_or_zero(jnp.einsum("sio,so->i", kernel, bias), square)
    return kernel - mean_input[None, :, None] * bias[:, None, :]


def kernel_of(bias: str, arrays: Mapping[str, Any]) -> tuple[str, int] | None:
    """The name of the kernel that belongs to a bias, and which of its axes counts outputs; none where there is none."""
    for end, axis in (("kernel", -1), ("weight", 1)):
        name = bias.removesuffix("bias") + end
        if bias.endswith("bias") and name in arrays:
            kernel, outputs = arrays[name], arrays[bias].shape[1:]
            return (name, axis) if kernel.ndim > 2 and (kernel.shape[axis],) == outputs else None
    return None


def without_mean_inputs(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of all sites, in every layer with a bias less what its mean input explains."""
    found = dict(arrays)
    for name, bias in arrays.items():
        if (place := kernel_of(name, arrays)) is not None:
            kernel = jnp.moveaxis(arrays[place[0]], place[1], -1)
            found[place[0]] = without_mean_input(kernel.reshape(len(kernel), -1, kernel.shape[-1]), bias)
            # The bias itself says how common each outcome is, by which good sites differ more than by anything else.
            del found[name]
    return found


def evidence(answers: Message, stack: Stack, longest: float) -> tuple[jax.Array, jax.Array]:
    """What each pair of answers has in common (inner products), and how long each answer is."""
    lengths = jnp.sqrt(jnp.sum(jnp.square(stack.values), axis=1))
    # Of unit length while the mean input is fitted: else one long answer would decide what it is.
    factors = trees.divide_or_zero(stack.present.astype(jnp.float32), lengths * stack.weights)

    def unit(leaf: jax.Array) -> jax.Array:
        each = factors.reshape(-1, *(1,) * (leaf.ndim - 1))
        return jnp.where(each > 0, leaf * each, 0.0)

    arrays = jax.tree.map(unit, content(answers))
    centred = {name: without_mean_inputs(tree) if isinstance(tree, dict) else tree for name, tree in arrays.items()}
    rows = as_matrix(centred, len(lengths))
    # Nor may a site make one round count for all others by a long answer in it.
    counted = jnp.minimum(lengths, longest * median_of(lengths, stack.present))[:, None]
    return jnp.matmul(rows * counted, (rows * counted).T, precision=jax.lax.Precision.HIGHEST), lengths


def is_ordinary(lengths: jax.Array, present: jax.Array, longest: float) -> jax.Array:
    """Whose answers are neither too long nor next to nothing, from the logarithms of their lengths."""
    some = present & (lengths >= median_of(lengths, present) + jnp.log(SHORTEST))
    return some & (lengths <= median_of(lengths, some) + jnp.log(longest))


def camps(agreement: jax.Array) -> jax.Array:
    """From 1, reliable, to -1, for every site: the mean-field solution in which the larger camp is reliable."""

    def step(index: jax.Array, trust: jax.Array) -> jax.Array:
        # Slowly sharper: who is in which camp is decided by all pairs before single ones are made much of.
        sharpness = SHARPNESS * (0.3 + 0.7 * index / STEPS)
        # Rounded, or the last bit of a sum would grow until it decided between two camps of the same size.
        field = jnp.round(agreement @ trust + BENEFIT, 5)
        return 0.5 * trust + 0.5 * jnp.tanh(sharpness * field)

    return jax.lax.fori_loop(0, STEPS, step, jnp.ones(len(agreement)))


def cosines(memory: Mapping[str, jax.Array]) -> jax.Array:
    """How far each pair of sites agreed in the rounds in which both answered, from -1 to 1."""
    return trees.divide_or_zero(memory["products"], jnp.sqrt(memory["squares"] * memory["squares"].T))


def reliable_mean(*, longest: Positive = 2.5, at_once: NotNegative = 2.0, keep: Share = 1.0) -> Aggregator:
    """Mean of the answers of sites that the server learned, over the rounds, to tell from unreliable ones."""

    def init(template: Message) -> Tree:
        sites = template.arrays["site"].shape[0]
        if sites > MOST_SITES:
            raise Refusal(
                f"the aggregator remembers how each pair of sites agreed, and the study has {sites} sites",
                where="aggregator reliable_mean",
                remedy=f"choose another, such as majority_mean, or let at most {MOST_SITES} sites take part",
            )
        shapes = {"products": (sites, sites), "squares": (sites, sites), "lengths": (sites,), "rounds": (sites,)}
        return {**{name: jnp.zeros(shape) for name, shape in shapes.items()}, "reliable": jnp.ones(sites)}

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        answers, site = without_site(answers), jnp.asarray(answers.arrays["site"])
        stack = open_stack(answers)
        present, sites = stack.present, len(state["rounds"])
        site = jnp.where(present, site, sites)  # beyond the last: what is put there is dropped
        products, lengths = evidence(answers, stack, longest)
        ratios = jnp.log(jnp.maximum(trees.divide_or_zero(lengths, median_of(lengths, present)), 1e-6))
        both = (present[:, None] & present[None, :]).astype(jnp.float32)
        news = {
            "products": both * products,
            "squares": both * jnp.diag(products)[:, None],
            "lengths": jnp.where(present, ratios, 0.0),
            "rounds": present.astype(jnp.float32),
        }
        kept = jnp.where(stack.sites > 0, keep, 1.0)
        memory = {
            name: (kept * state[name])
            .at[(site[:, None], site[None, :]) if new.ndim == 2 else site]
            .add(new, mode="drop")
            for name, new in news.items()
        }
        ordinary = is_ordinary(trees.divide_or_zero(memory["lengths"], memory["rounds"]), memory["rounds"] > 0, longest)
        # Who is left out for the length of its answers has no say about the others either.
        says = ordinary[:, None] & ordinary[None, :] & ~jnp.eye(sites, dtype=bool)
        trust = camps(jnp.where(says, jnp.clip(cosines(memory), -LIMIT, LIMIT), 0.0))
        # Fewer than half are bad: where all contradict all, those least contradicted are heard.
        reliable = ordinary & ((trust > 0) | (trust >= median_of(trust, ordinary)))
        heard = jnp.append(reliable, False)[site]
        if at_once:  # judged by this round alone, so it does not change whom the memory relies on
            heard = heard & (lengths <= at_once * median_of(lengths, heard))
        weights = jnp.where(heard, stack.weights, 0.0)
        told = jnp.where(memory["rounds"] > 0, reliable.astype(jnp.float32), 1.0)
        row = combine(stack, trees.divide_or_zero(weights, jnp.sum(weights)))
        return close_stack(answers, stack, row), {**memory, "reliable": told}

    return Aggregator(
        init=init,
        reduce=reduce,
        linear=False,
        needs=("site",),
        tells=lambda state: {"reliable": state["reliable"]},
    )
