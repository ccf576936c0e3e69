"""Nuclei learned from made-up images: `python -m benchmarks.generated_images` prints one JSON object a step.

Sites of the data set `nuclei` in grey, at most `--most` training tiles each. AsynDGAN trains a generator for `--rounds`
rounds. Then the same U-Net is trained from the same start, for as many steps, on the sites' real tiles in one place, on
images drawn by the trained generator, and on images drawn by the generator before training; each is judged by the Dice
of single real tiles (`--part`: choose on "validation", report "test"). With `--masks` sites tell statistics of their
masks, and each style has ellipses of its own. What the drawn images tell is attacked, beside a generator that
memorised. `--noise` trains the discriminators by DP-SGD with that noise multiplier and `--clip`.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.nuclei import cut, interval
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.images.asyn_dgan import asyn_dgan
from wardround.core.components.generation import arrays_of
from wardround.core.contracts import Array, Batch, Model
from wardround.core.federation import Federation
from wardround.core.overlap import dice_of, overlap_of, truth_of
from wardround.data.datasets.images.nuclei import nuclei
from wardround.engine.simulate import Simulation
from wardround.models.images.gan_u_net import gan_u_net
from wardround.models.images.simulator import numbers_of
from wardround.models.images.u_net import u_net
from wardround.privacy.attacks.membership import evaluate_attack
from wardround.privacy.attacks.nearest_images import attack_images, memorized
from wardround.privacy.dp_sgd import private_model, sample_level
from wardround.privacy.sampling import ExpectedSize

Numbers = np.ndarray[Any, Any]
Pairs = tuple[Numbers, Numbers]
STATISTICS = 29
"""Of masks, and whether they are told, in a place for every style."""


def grey(data: Federation) -> Federation:
    """The first of three equal channels."""
    return replace(data, x=data.x[..., :1], task=data.task._replace(shape=(*data.task.shape[:2], 1)))


def rows_of(data: Federation, site: int, part: str) -> Pairs:
    first, count = (int(column[site]) for column in data.part(part))
    return data.x[first : first + count].astype(np.float32) / 255, data.y[first : first + count]


def trainer(model: Model, steps: int) -> Callable[[Numbers, Numbers, int], Any]:
    """From pairs and a seed to a trained U-Net: batches of 8 drawn at random, Adam; a seed is a start and an order."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.005, steps))

    @jax.jit
    def train(x: Array, y: Array, seed: int) -> Any:
        params = model.init(jax.random.key(seed))

        def step(index: Array, carry: Any) -> Any:
            params, memory = carry
            which, looking = jax.random.split(jax.random.fold_in(jax.random.key(seed + 1), index))
            at = jax.random.randint(which, (8,), 0, len(x))
            slope = model.gradient(params, Batch(x[at], y[at], jnp.ones(8)), looking)
            updates, memory = optimizer.update(slope, memory, params)
            return optax.apply_updates(params, updates), memory

        return jax.lax.fori_loop(0, steps, step, (params, optimizer.init(params)))[0]

    return train


def judged(model: Model, params: Any, data: Federation) -> list[Numbers]:
    """The Dice of every real test tile, site by site."""
    predict, found = jax.jit(model.predict), []
    for site in range(len(data.sites)):
        x, y = rows_of(data, site, "test")
        found.append(dice_of(np.asarray(overlap_of(np.asarray(predict(params, x)), y), np.float64), truth_of(y)))
    return found


def judge(name: str, model: Model, train: Any, pairs: Pairs, size: int, data: Federation, seed: int) -> float:
    """Train on the pairs, repeated or cut to `size` so that one program serves all, and tell the Dice."""
    began = time.process_time()
    at = np.random.default_rng(0).permutation(np.resize(np.arange(len(pairs[0])), max(size, len(pairs[0]))))[:size]
    groups = judged(model, train(pairs[0][at], pairs[1][at], seed), data)
    told = {site: interval([one]) for site, one in zip(data.sites, groups, strict=True)}
    mean = interval(groups)
    seconds = round(time.process_time() - began, 1)
    say({"trained on": name, "seed": seed, "mean": mean, "sites": told, "processor_seconds": seconds})
    return mean[0]


def say(content: Any) -> None:
    print(json.dumps(content), flush=True)


def train_generator(model: Model, data: Federation, said: argparse.Namespace) -> Any:
    """The run's progress and the first parameters."""
    settings: dict[str, Any] = {"images": 8, "batch_size": 16, "segmenter_steps": 0, "mask_statistics": said.masks}
    plain = asyn_dgan(model, weighted_mean(), **settings)
    method = plain
    if said.noise:
        under = private_model(model, clip=said.clip, noise_multiplier=said.noise)
        inner = asyn_dgan(under, weighted_mean(), **{**settings, "batch_size": ExpectedSize(16)})
        method = sample_level(inner, plain, seeded=True)
    first = model.init(jax.random.key(said.seed))
    assert model.generation is not None
    with Simulation(data, seed=said.seed) as engine:
        everybody, began = np.arange(len(data.sites)), time.process_time()
        rounds = [(number, everybody) for number in range(1, said.rounds + 1)]
        progress, _ = engine.train(method, engine.begin(method, first), rounds)
        progress = jax.device_get(progress)
    arrays = arrays_of(first, "generator/")
    size = sum(int(array.size) for array in arrays.values())
    for site, name in enumerate(data.sites) if said.masks else ():
        row = method.params(progress.server)[model.generation.shape_table][site]
        say({"masks": name, **{key: round(float(value), 3) for key, value in numbers_of(row).items()}})
    seconds = round(time.process_time() - began, 1)
    size += (STATISTICS + 1) * model.generation.styles if said.masks else 0
    say({"generator": {"numbers up a round": size + 1, "rounds": said.rounds, "processor_seconds": seconds}})
    return first, method.params(progress.server), progress.clients[0]


def attack_site(model: Model, critics: Any, site: int, drawn: Numbers, data: Federation) -> dict[str, Any]:
    """Nearest neighbours and membership at one site, beside a generator that memorised and its own discriminator."""
    (learned, masks), (others, other_masks) = (rows_of(data, site, part) for part in ("train", "test"))
    control = attack_images(memorized(learned, len(drawn)), learned, others)
    critic = {name: array[site] for name, array in critics.items()}

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0))
    def unreal(x: Array, y: Array) -> Array:
        return model.loss(critic, Batch(x[None], y[None], jnp.ones(1)), jax.random.key(0))

    scores = -np.concatenate([np.asarray(unreal(x, y)) for x, y in ((learned, masks), (others, other_masks))])
    members = np.repeat([1, 0], [len(learned), len(others)])
    by_critic = evaluate_attack(scores, members, float(np.median(scores)))
    own = attack_images(drawn, learned, others)
    told: dict[str, Any] = {"by the discriminator": by_critic._asdict()}
    for name, found in (("drawn", own), ("memorised", control)):
        told[name] = {**found._asdict(), "membership": found.membership._asdict()}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", nargs="*", default=["fluo_small", "fluo_360", "fluo_large"])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--most", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--drawn", type=int, default=300, help="images of each style")
    parser.add_argument("--steps", type=int, default=800, help="of the U-Net")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", action="store_true", help="fit each style's ellipses to statistics of its masks")
    parser.add_argument("--standardize", action="store_true")
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    said = parser.parse_args()
    say({"settings": vars(said)})
    tiles = grey(nuclei(size=said.size, sites=tuple(said.sites), standardize=said.standardize))
    data = cut(tiles, said.most, said.seed, judged=said.part)
    crowd: dict[str, Any] = {"structures": 16, "presence": 0.2} if said.masks else {}
    model = gan_u_net(data.task, filters=4, **crowd)
    plain = u_net(data.task, filters=4, depth=2, flip=True, brightness=0.1)
    sites, size = range(len(data.sites)), said.drawn * len(data.sites)
    train = trainer(plain, said.steps)
    real = [rows_of(data, site, "train") for site in sites]
    pooled = np.concatenate([x for x, _ in real]), np.concatenate([y for _, y in real])
    best = judge("real tiles", plain, train, pooled, size, data, said.seed)
    first, last, critics = train_generator(model, data, said)
    assert model.generation is not None
    generate = jax.jit(model.generation.generate)
    for name, params in (("drawn images", last), ("images drawn before training", first)):
        pairs = [generate(params, jnp.full(said.drawn, site), jax.random.key(100 + site)) for site in sites]
        x, y = (np.concatenate([np.asarray(one[place]) for one in pairs]) for place in (0, 1))
        found = judge(name, plain, train, (x, y), size, data, said.seed)
        say({name: {"share of real": round(found / best, 4)}})
        for site in sites if params is last else ():
            drawn = x[site * said.drawn : (site + 1) * said.drawn]
            say({"attack": data.sites[site], **attack_site(model, critics, site, drawn, data)})


if __name__ == "__main__":
    main()
