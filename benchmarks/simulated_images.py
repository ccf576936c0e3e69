"""Nuclei learned from simulated images: `python -m benchmarks.simulated_images` prints one JSON object a step.

Sites of the data set `nuclei` in grey, at most `--most` training tiles each. FED-SIM fits a simulator of labelled
images to the sites' mean statistics in `--rounds` rounds, one step of the search each. Then the same U-Net is trained
from the same start, for as many steps, on the sites' real tiles in one place, on images drawn by the fitted simulator,
and on images drawn before the fit, each with several widths around the numbers (`--variety`); each is judged by the
Dice of single real tiles (`--part`: choose on "validation", report "test"). `--starts` repeats this with other starts
of the U-Net and other drawn images, after the same fit. `--put-back light_spread+own_spread noise` draws by the fitted
simulator with these numbers as they were before the fit, all of a group at once. What the drawn images tell is
attacked, beside a generator that memorised.
"""

import argparse
import time
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.generated_images import Numbers, grey, judge, rows_of, say, trainer
from benchmarks.nuclei import cut
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.images.fed_sim import fed_sim
from wardround.core.contracts import Model
from wardround.core.federation import Federation
from wardround.data.datasets.images.nuclei import nuclei
from wardround.engine.simulate import Simulation
from wardround.models.images.sim_u_net import TABLE, sim_u_net
from wardround.models.images.simulator import NAMES, numbers_of
from wardround.models.images.u_net import u_net
from wardround.privacy.attacks.nearest_images import attack_images, memorized


def fit_simulator(model: Model, data: Federation, said: argparse.Namespace) -> tuple[Any, Any]:
    """The parameters before the first round and after the last."""
    method = fed_sim(
        model, weighted_mean(), simulated=said.simulated, segmenter_steps=0, smallest_cell=said.smallest_cell
    )
    first, began = model.init(jax.random.key(said.seed)), time.process_time()
    with Simulation(data, seed=said.seed) as engine:
        rounds = [(number, np.arange(len(data.sites))) for number in range(1, said.rounds + 1)]
        progress = jax.device_get(engine.train(method, engine.begin(method, first), rounds)[0])
    last, seconds = method.params(progress.server), round(time.process_time() - began, 1)
    say({"rounds": said.rounds, "processor_seconds": seconds})
    for site, name in enumerate(data.sites):
        found = {key: round(float(value), 4) for key, value in numbers_of(last[TABLE][site]).items()}
        say({"site": name, "distance": round(float(progress.server["distance"][site]), 3), "numbers": found})
    return first, last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", nargs="*", default=["fluo_small", "fluo_360", "fluo_large"])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--most", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--simulated", type=int, default=256)
    parser.add_argument("--structures", type=int, default=16)
    parser.add_argument("--variety", type=float, nargs="*", default=[0.0])
    parser.add_argument("--put-back", nargs="*", default=[], help="groups of numbers, joined by +")
    parser.add_argument("--standardize", action="store_true")
    parser.add_argument("--smallest-cell", type=int, default=10)
    parser.add_argument("--drawn", type=int, default=300, help="images of each style")
    parser.add_argument("--steps", type=int, default=800, help="of the U-Net")
    parser.add_argument("--seed", type=int, default=0, help="of the training tiles")
    parser.add_argument("--starts", type=int, nargs="*", default=[0], help="seeds of the U-Net and of what is drawn")
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    said = parser.parse_args()
    say({"settings": vars(said)})
    tiles = grey(nuclei(size=said.size, sites=tuple(said.sites), standardize=said.standardize))
    data = cut(tiles, said.most, said.seed, judged=said.part)
    sites, size = range(len(data.sites)), said.drawn * len(data.sites)
    settings: dict[str, Any] = {"filters": 4, "styles": len(data.sites), "structures": said.structures}
    plain = u_net(data.task, filters=4, depth=2, flip=True, brightness=0.1)
    train = trainer(plain, said.steps)
    real = [rows_of(data, site, "train") for site in sites]
    pooled = np.concatenate([x for x, _ in real]), np.concatenate([y for _, y in real])
    learned_real = [judge("real tiles", plain, train, pooled, size, data, start) for start in said.starts]
    first, last = fit_simulator(sim_u_net(data.task, **settings), data, said)
    for (name, params), variety in product(tables(first, last, said.put_back).items(), said.variety):
        generation = sim_u_net(data.task, variety=variety, **settings).generation
        assert generation is not None
        generate, told, dice = jax.jit(generation.generate), f"{name}, variety {variety:g}", []
        for start in said.starts:
            keys = [jax.random.key(100 + site + 1000 * start) for site in sites]
            pairs = [generate(params, jnp.full(said.drawn, site), keys[site]) for site in sites]
            x, y = (np.concatenate([np.asarray(one[place]) for one in pairs]) for place in (0, 1))
            dice.append(judge(told, plain, train, (x, y), size, data, start))
            if name == "fitted" and start == said.starts[0]:
                attack(x.reshape(len(sites), said.drawn, *x.shape[1:]), data)
        shares = [round(one / best, 4) for one, best in zip(dice, learned_real, strict=True)]
        say({told: {"shares of real": shares, "share of means": round(sum(dice) / sum(learned_real), 4)}})


def tables(first: Any, last: Any, put_back: list[str]) -> dict[str, Any]:
    """The parameters by which images are drawn."""
    found = {"fitted": last, "not fitted": first}
    for group in put_back:
        places = np.array([NAMES.index(name) for name in group.split("+")])
        table = np.array(last[TABLE])
        table[:, places] = np.asarray(first[TABLE])[:, places]
        found[f"fitted but for {group}"] = {**last, TABLE: table}
    return found


def attack(drawn: Numbers, data: Federation) -> None:
    """Membership, of the images drawn for each site."""
    for site, name in enumerate(data.sites):
        learned, others = (rows_of(data, site, part)[0] for part in ("train", "test"))
        control = memorized(learned, len(drawn[site]))
        found = {
            kind: attack_images(x, learned, others) for kind, x in (("drawn", drawn[site]), ("memorised", control))
        }
        say({"attack": name, **{kind: one.membership._asdict() for kind, one in found.items()}})


if __name__ == "__main__":
    main()
