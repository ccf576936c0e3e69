"""Partial pooling: each site has coefficients of its own, as far as its patients show that they differ.

An empirical Bayes hierarchical model (Lindley and Smith, "Bayes estimates for the linear model", 1972; Laird and Ware,
"Random-effects models for longitudinal data", 1982): the coefficients of the sites are draws around common ones, with a
variance for each coefficient that all sites learn together. Where the variance comes out small everybody has nearly the
common model; where it is large, or a site has many patients, nearly its own. So it comes near the better of both
without anybody having to know which that is, and is better than both where sites differ in some coefficients only.

Every round a site finds its most likely coefficients given the common ones and the variances (Fisher scoring, on all
its rows) and tells how far they are from the common ones and how sure that is (Laplace's approximation); the server
moves the common ones by the generalized least squares step and the variances by the EM step (Dempster, Laird and Rubin
1977). A few sites tell little of each variance, so those of one array (the weights, the intercepts) are taken for draws
around a common one, from a Cauchy distribution of their logarithms: where nothing speaks against it all weights have
nearly one variance, and a weight that clearly differs between sites keeps its own.

The common coefficients have a prior around 0, so that one of which no site has any evidence stays there; how wide it is
(`reach` at the beginning and at most, in units of standardized features) is learned from all of them, as the ridge of a
regression is by its evidence (MacKay, "Bayesian interpolation", 1992).

One site that lies moves the common coefficients by at most 25 deviations (root mean square) in a round and the
variances threefold; sites with many patients of their own hardly follow, but it takes an aggregator such as `median` to
keep a persistent liar out. Needs nothing but the sums of the answers, so it works under a secure sum; it looks at the
information of all rows, to which DP-SGD adds no noise, so not in a private study. For models of up to 600 numbers
(logistic and linear regression); take `model_interpolation` for networks. Sends the model and as many variances down
and as many numbers as the model has squared up. Ten rounds are enough mostly; what is left after twenty is the slow way
of a variance to 0. A site that joins later uses the common coefficients, or its own after one fit.
"""

import jax
import jax.numpy as jnp

from wardround.core.answers import answer
from wardround.core.bounds import Count, NotNegative, Positive
from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import CHUNK, batches
from wardround.core.errors import Refusal
from wardround.core.solvers.fisher import flat, like, mean_information
from wardround.core.solvers.linear_system import inverse, solution

LABEL = "Own model, as far as it differs"
WIDEST = 600
"""Numbers of the largest model: a site solves a system of this size."""
STEPS = 3
"""Fisher scoring steps in a round, from where the site was in the last."""
STRIDES = (1.0, 0.5, 0.2, 0.05, 0.0)
"""Parts of a step that are tried; the first that does not raise the loss is taken."""
DAMPING = 0.2
LONGEST = 5.0
"""Times the step of EM that the common coefficients move at most in a round."""
WIDE = 4.0
"""The largest variance: coefficients of standardized features hardly differ by more between sites."""
HASTE = 1.7
"""EM steps are short: they are taken so many times as long, in logarithms (below 2, where that is known to be safe)."""
TAILS = 2.0
"""Degrees of freedom of the sites' t distribution: the fewer, the sooner a site far from all others is let go."""
REWEIGHTINGS = 5
"""Steps to the centre of the logarithms of the variances, and to what is left of each one's own."""
NARROWEST = 1e-6
USUAL, WORTH = 0.02, 10.0
"""The square of a common coefficient before anything is known, and as many coefficients' worth of telling that is."""
FAR = 5.0
"""Deviations of the sites' own distribution by which a common coefficient is drawn in a round, whatever sites say."""


def refuse_unfit(model: Model, width: int) -> None:
    """Refuse models for whose coefficients no system of equations is solved."""
    if model.features is None and width <= WIDEST:
        return
    what = "one answer for every pixel" if model.features is not None else f"{width} coefficients"
    raise Refusal(
        f"partial pooling solves for the coefficients of one answer a row, all at once, and the model has {what}",
        where="[algorithm]",
        remedy="take model_interpolation for a large model, or a logistic or linear regression",
    )


def partial_pooling(
    model: Model,
    aggregator: Aggregator,
    *,
    start: Positive = 0.25,
    reach: Positive = 3.0,
    lent: NotNegative = 4.0,
    smallest_cell: Count = 1,
) -> Algorithm:
    """Each site its own coefficients, pulled to the common ones as strongly as all sites together show (recommended).

    start: the variance of the sites' coefficients before anything is known. reach: how far the common coefficients are
    from 0 before anything is known, and at most (a standard deviation, learned from then on). lent: how many sites'
    worth of telling it is that a variance is near those of the same array; the less, the farther away it seems.
    smallest_cell: patients that must be behind a site's information, so that no model singles one out (set by sites).
    """

    def init(params: Params, sites: int) -> Tree:
        width = flat(params).shape[0]
        refuse_unfit(model, width)
        return {
            "params": params,
            "variance": jnp.full(width, start),
            "noise": jnp.ones(()),
            "width": jnp.full((), reach**2),
        }

    def objective(own: Array, pull: Array, message: Message, shard: Shard, key: Key) -> Array:
        """Minus the logarithm of the posterior of a site's coefficients."""
        params: Params = message.arrays["params"]

        def body(index: Array, total: Array) -> Array:
            batch = shard.batch(0, index, CHUNK)
            return total + jnp.sum(batch.mask) * model.loss(like(params, own), batch, jax.random.fold_in(key, index))

        losses = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, jnp.zeros(()))
        apart = pull * jnp.square(own - flat(params)) / message.arrays["variance"]
        return losses / exponent_of(model, message, shard) + jnp.sum(apart) / 2

    def settle(
        message: Message, kept: Tree, shard: Shard, key: Key, steps: int
    ) -> tuple[Array, Array, Array, Array, Array]:
        """The coefficients after some steps, and in units of the prior; what is left unknown of them; the residual;
        and the patients behind it."""
        pull = kept["pull"]
        params: Params = message.arrays["params"]
        centre, root = flat(params), jnp.sqrt(message.arrays["variance"])
        rows = shard.rows.astype(jnp.float32)

        def system(now: Array) -> tuple[Array, Array, Array, Array]:
            found = mean_information(model, like(params, now), shard, key, flat)
            weight = rows / noise_of(model, message, shard)
            unit = pull * jnp.eye(now.shape[0]) + weight * root[:, None] * found.bend * root
            slope = weight * root * (found.slope + found.penalty) + pull * (now - centre) / root
            return unit, slope, found.spread, found.behind[1]

        def body(_: Array, now: Array) -> Array:
            unit, slope, _, _ = system(now)
            step = root * solution(unit, slope)
            tried = jnp.stack([now - stride * step for stride in STRIDES])
            values = jax.vmap(lambda one: objective(one, pull, message, shard, key))(tried)
            # Near the end rounding decides between strides, so a whole step is taken unless it is clearly worse.
            return tried[jnp.argmax(values <= values[-1] + 1e-5 * (1 + jnp.abs(values[-1])))]

        own = jax.lax.fori_loop(0, steps, body, kept["own"])
        unit, _, spread, behind = system(own)
        return own, (own - centre) / root, inverse(unit), spread, behind

    def broadcast(state: Tree) -> Message:
        return Message({name: state[name] for name in ("params", "variance", "noise")})

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        own, apart, unknown, spread, behind = settle(message, kept, shard, key, STEPS)
        apart, unknown = withheld(apart, unknown, kept["pull"], behind, smallest_cell)
        pull, square = kept["pull"], jnp.square(apart) + jnp.diagonal(unknown)
        arrays = {
            "apart": pull * apart,
            "known": pull * (jnp.eye(apart.shape[0]) - pull * unknown),
            "square": pull * square,
            "spread": spread,
        }
        freer = jnp.clip((TAILS + square.shape[0]) / (TAILS + jnp.sum(square)), 0.2, 1.0)
        return (
            answer(model, aggregator, message.arrays["params"], shard, "uniform", arrays),
            {"own": own, "pull": jnp.where(shard.rows > 0, freer, pull)},
        )

    def server(state: Tree, combined: Message) -> Tree:
        said, root = combined.arrays, jnp.sqrt(state["variance"])
        # The weight is the number of sites that answered. Answers are means over them, so each brings its part of the
        # prior of the common coefficients.
        centre, sites = flat(state["params"]), jnp.maximum(said["weight"], 1e-9)
        prior = state["variance"] / (state["width"] * state["noise"] * sites)
        # Damped: of two classes' coefficients only the difference is known, and rounding must not move their sum.
        system = said["known"] + jnp.diag(prior + DAMPING * jnp.mean(jnp.diagonal(said["known"])) + 1e-6)
        towards = jnp.clip(said["apart"], -FAR, FAR) - prior * centre / root
        step = root * bounded(solution(system, towards), towards)
        ratio = jnp.clip(said["square"] - jnp.square(said["apart"]), 0.25, 2.0)
        seen = like(state["params"], state["variance"] * ratio**HASTE)
        variance = flat(jax.tree.map(lambda own: drawn_together(own, sites, lent), seen))
        found = {
            "params": like(state["params"], centre + step),
            "variance": jnp.clip(variance, NARROWEST, WIDE),
            "noise": jnp.maximum(jnp.clip(said["spread"], state["noise"] / 100, 100 * state["noise"]), NARROWEST),
            "width": jnp.clip(
                learned_width((centre + step) / jnp.sqrt(state["noise"]), said["known"], prior, state["width"]),
                NARROWEST,
                reach**2,
            ),
        }
        # A round in which nobody answered tells nothing.
        answered = jnp.any(said["square"] != 0)
        return jax.tree.map(lambda new, old: jnp.where(answered, new, old), found, state)

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        return like(message.arrays["params"], settle(message, kept, shard, key, 2 * STEPS)[0])

    return Algorithm(
        init=init,
        init_client=lambda params: {"own": flat(params), "pull": jnp.ones(())},
        broadcast=broadcast,
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
        personal=Personal(fit),
    )


def drawn_together(variance: Array, sites: Array, lent: float) -> Array:
    """The variances of one array as far as so many sites can tell them apart.

    The logarithm of a variance that sites tell has itself a variance of 2 / sites; around their common centre they are
    taken for draws from a Cauchy distribution whose scale has the square 2 / lent. Both its centre and the likeliest
    logarithms are found by weighting anew, so that one that is far away moves the centre little and itself hardly.
    """
    told = jnp.log(variance)

    def belonging(away: Array) -> Array:
        return 2 / (1 + jnp.square(away) * lent / 2)

    def recentred(_: Array, centre: Array) -> Array:
        weight = belonging(told - centre)
        return jnp.sum(weight * told) / jnp.sum(weight)

    centre = jax.lax.fori_loop(0, REWEIGHTINGS, recentred, jnp.median(told))

    def nearer(_: Array, own: Array) -> Array:
        weight = lent * belonging(own - centre)
        return (sites * told + weight * centre) / (sites + weight)

    return jnp.exp(jax.lax.fori_loop(0, REWEIGHTINGS, nearer, told))


def learned_width(centre: Array, known: Array, prior: Array, width: Array) -> Array:
    """The variance of the common coefficients around 0 by their evidence, from a quarter to four times that of before.

    Both `known` and `prior`, what sites know and the prior says, are in the same units. Of what is as unknown as before
    (of two classes' coefficients the sum) nothing was told.
    """
    left = prior * jnp.diagonal(inverse(known + jnp.diag(prior)))
    told = jnp.sum(1 - jnp.clip(jnp.nan_to_num(left, nan=1.0), 0.0, 1.0))
    found = (jnp.sum(jnp.square(centre)) + WORTH * USUAL) / (told + WORTH)
    return jnp.clip(found, width / 4, 4 * width)


def noise_of(model: Model, message: Message, shard: Shard) -> Array:
    """The residual variance of a regression; of classes, which have none, 1 whatever a site has said."""
    noise: Array = message.arrays["noise"]
    return noise if is_regression(model, message, shard) else jnp.ones(())


def exponent_of(model: Model, message: Message, shard: Shard) -> Array:
    """A squared error is twice the variance times what a normal distribution has in its exponent."""
    return noise_of(model, message, shard) * (2.0 if is_regression(model, message, shard) else 1.0)


def is_regression(model: Model, message: Message, shard: Shard) -> bool:
    return bool(jax.eval_shape(model.predict, message.arrays["params"], shard.batch(0, 0, 1).x).ndim == 1)


def withheld(apart: Array, unknown: Array, pull: Array, behind: Array, cell: int) -> tuple[Array, Array]:
    """As a site without patients would answer, where fewer than a cell are behind its information."""
    if cell <= 1:
        return apart, unknown
    few = behind < cell
    return jnp.where(few, 0.0, apart), jnp.where(few, jnp.eye(apart.shape[0]) / pull, unknown)


def bounded(step: Array, towards: Array) -> Array:
    """No longer than some EM steps: where a site's patients are told apart wholly, its information vanishes.

    An EM step where there is none, as when a site has told an information that cannot be.
    """
    step = jnp.where(jnp.all(jnp.isfinite(step)), step, towards)
    longest = LONGEST * jnp.linalg.norm(towards) / jnp.maximum(jnp.linalg.norm(step), 1e-12)
    return step * jnp.minimum(1.0, longest)
