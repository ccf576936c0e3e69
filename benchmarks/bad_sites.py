"""What bad sites cost: points of accuracy lost with three in ten sites bad, by attack, split and aggregator.

`python -m benchmarks.bad_sites` prints a table and one JSON object. Handwritten digits (1,797 real images of 8 x 8, in
scikit-learn), a logistic model or a perceptron, FedAvg with one pass in batches of 20. Sites are alike (IID), or each
draws its mix of the ten digits from a Dirichlet of 0.1 (Hsu et al. 2019), which leaves most sites one or two digits.
Points are lost against the weighted mean with everybody honest, on test images that no site has; a mean over the seeds.
"absent": the bad sites do nothing at all, so what is lost is their patients. "fooled": how many test images with the
trigger are taken for the digit that the backdoor wants. "undecidable": test images of digits of which the bad sites
hold at least as many images as the honest ones, so that counting who says what of a digit does not tell who is right.
It shows how hard a split is and is no bound: a rule that uses more than counts can lose less.
"""

import argparse
import json
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from wardround.aggregators.centered_clipping import centered_clipping
from wardround.aggregators.majority_mean import majority_mean
from wardround.aggregators.multi_krum import multi_krum
from wardround.aggregators.nearest_mixing import nearest_mixing
from wardround.aggregators.reliable_mean import reliable_mean
from wardround.aggregators.trimmed_mean import trimmed_mean
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Aggregator, Algorithm, Array, Message, Shard, Task
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.privacy.attacks.bad_sites import (
    Attack,
    AttackerView,
    alie,
    backdoor,
    free_rider,
    ipm,
    label_flip,
    sign_flip,
    with_bad_sites,
)

Rows = np.ndarray[Any, Any]
CLASSES, TEST, WANTED = 10, 600, 0
FIRST_SEED = 100
"""Aggregators were designed on other splits (seeds from 0): figures of those would flatter what was chosen by them."""
TASK = Task((64,), tuple("0123456789"))
MODELS = {"logistic": logistic(TASK), "mlp": mlp(TASK)}


def trigger(x: Any) -> jax.Array:
    """Three bright points in a corner where digits have none."""
    return jnp.asarray(x).at[..., :3].set(1.0)


ATTACKS: dict[str, Attack] = {
    "none": Attack(),
    "absent": Attack(),
    "sign flip": sign_flip(),
    "ALIE": alie(),
    "IPM 0.1": ipm(factor=0.1),
    "IPM 0.5": ipm(factor=0.5),
    "IPM 3": ipm(factor=3.0),
    "label flip": label_flip(CLASSES),
    "backdoor": backdoor(trigger, WANTED),
    "free rider": free_rider(),
}


def aggregators(bad: int) -> dict[str, Aggregator]:
    return {
        "weighted_mean": weighted_mean(),
        "multi_krum": multi_krum(bad=bad),
        "trimmed_mean": trimmed_mean(share=0.3),
        "centered_clipping": centered_clipping(radius=0.3),
        "nearest_mixing": nearest_mixing(bad=bad),
        "reliable_mean": reliable_mean(),
        "reliable_mean, 0.98": reliable_mean(keep=0.98),
        "reliable_mean, any length at once": reliable_mean(at_once=0.0),
        "majority_mean": majority_mean(),
        "majority_mean, 30": majority_mean(deviations=30.0),
    }


class Split(NamedTuple):
    """Training images by site, filled up behind, how many each has, and the test images; the first sites are bad."""

    x: Rows
    y: Rows
    rows: Rows
    test_x: Rows
    test_y: Rows


@cache
def split(dirichlet: float | None, sites: int, seed: int) -> Split:
    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(x))
    test, train = order[:TEST], order[TEST:]
    each = len(train) // sites
    if dirichlet is None:
        mine = train[: sites * each].reshape(sites, each)
    else:
        of_class = [train[y[train] == label] for label in range(CLASSES)]
        shares = generator.dirichlet(np.full(CLASSES, dirichlet), sites)
        labels = [generator.choice(CLASSES, each, p=share) for share in shares]
        mine = np.array([[generator.choice(of_class[label]) for label in one] for one in labels])
    room = ((0, 0), (0, 64))
    return Split(np.pad(x[mine], (*room, (0, 0))), np.pad(y[mine], room), np.full(sites, each), x[test], y[test])


def undecidable(data: Split, bad: int) -> float:
    """Per cent of the test images whose digit the bad sites hold as often as the honest ones."""
    each = int(data.rows[0])
    held = np.array([np.bincount(labels[:each], minlength=CLASSES) for labels in data.y])
    return 100 * float(np.mean((held[:bad].sum(axis=0) >= held[bad:].sum(axis=0))[data.test_y]))


def switched(kind: jax.Array) -> Attack:
    """The attack of this number, told only when the program runs: one program for all of them."""

    def rows(x: Array, y: Array) -> tuple[Array, Array]:
        ways = [one.rows or (lambda x, y: (x, y)) for one in ATTACKS.values()]
        found: tuple[Array, Array] = jax.lax.switch(kind, ways, x, y)
        return found

    def answers(seen: AttackerView) -> Any:
        ways = [one.answers or (lambda seen: seen.updates) for one in ATTACKS.values()]
        return jax.lax.switch(kind, ways, seen)

    return Attack(rows=rows, answers=answers)


class Course(NamedTuple):
    """How long is trained, which model, and from which round on the bad sites are bad."""

    rounds: int = 200
    model: str = "logistic"
    begin: int = 0


@cache
def program(name: str, sites: int, bad: int, course: Course) -> Any:
    """A whole training with all sites side by side."""
    model, aggregator = MODELS[course.model], aggregators(bad)[name]

    @jax.jit
    def train(kind: jax.Array, x: jax.Array, y: jax.Array, rows: jax.Array) -> Any:
        plain = fed_avg(model, aggregator, batch_size=20, learning_rate=0.5, weights="uniform")

        def answer(
            params: Any, algorithm: Algorithm, absent: jax.Array, x: Any, y: Any, rows: jax.Array, site: jax.Array
        ) -> Any:
            shard = Shard(x, y, jnp.int32(0), rows, rows, site, algorithm.largest_batch)
            said = algorithm.client(Message({"params": params}), (), shard, jax.random.key(0))[0]
            silent = absent & (site < bad)
            return {**jax.tree.map(lambda leaf: jnp.where(silent, 0.0, leaf), said.arrays), "site": site}

        def one_round(state: Any, number: jax.Array) -> Any:
            params, memory = state
            now = jnp.where(number < course.begin, list(ATTACKS).index("none"), kind)
            algorithm = with_bad_sites(plain, range(bad), switched(now))
            own = partial(answer, params, algorithm, now == list(ATTACKS).index("absent"))
            stack = jax.vmap(own)(x, y, rows, jnp.arange(sites))
            said, memory = algorithm.aggregator.reduce(memory, Message(stack))
            return (algorithm.server(params, said), memory), None

        start = model.init(jax.random.key(0))
        template = Message({"update": start, "weight": jnp.zeros(()), "site": jnp.arange(sites)})
        first = with_bad_sites(plain, range(bad), Attack()).aggregator.init(template)
        return jax.lax.scan(one_round, (start, first), jnp.arange(course.rounds))[0][0]

    return train


def measured(name: str, attack: str, data: Split, bad: int, course: Course) -> tuple[float, float]:
    """Per cent of test images told rightly, and of those with the trigger that are taken for the wanted digit."""
    run = program(name, len(data.rows), bad, course)
    params = jax.device_get(run(jnp.int32(list(ATTACKS).index(attack)), data.x, data.y, data.rows))

    def predicted(x: Rows) -> Rows:
        return np.asarray(np.argmax(MODELS[course.model].predict(params, x), axis=1))

    marked = np.asarray(trigger(data.test_x[data.test_y != WANTED]))
    right = float(np.mean(predicted(data.test_x) == data.test_y))
    return 100 * right, 100 * float(np.mean(predicted(marked) == WANTED))


def table(names: list[str], dirichlet: float | None, sites: int, seeds: int, course: Course) -> dict[str, Any]:
    bad = 3 * sites // 10
    found = {
        (name, attack): np.mean(
            [
                measured(name, attack, split(dirichlet, sites, seed), bad, course)
                for seed in range(FIRST_SEED, FIRST_SEED + seeds)
            ],
            axis=0,
        )
        for name in dict.fromkeys(["weighted_mean", *names])
        for attack in ATTACKS
    }
    honest = found["weighted_mean", "none"][0]
    return {
        "split": "IID" if dirichlet is None else f"Dirichlet {dirichlet:g}",
        "accuracy": round(float(honest), 2),
        "undecidable": round(
            float(
                np.mean(
                    [undecidable(split(dirichlet, sites, seed), bad) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
                )
            ),
            1,
        ),
        "lost": {
            name: {attack: round(float(honest - found[name, attack][0]), 2) for attack in ATTACKS} for name in names
        },
        "fooled": {name: round(float(found[name, "backdoor"][1]), 1) for name in names},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--aggregators", nargs="+", default=list(aggregators(1)), choices=list(aggregators(1)))
    parser.add_argument("--model", default="logistic", choices=list(MODELS))
    parser.add_argument("--begin", type=int, default=0, help="rounds before the bad sites turn bad")
    said = parser.parse_args()
    course = Course(said.rounds, said.model, said.begin)
    tables = [table(said.aggregators, one, said.sites, said.seeds, course) for one in (None, 0.1)]
    for one in tables:
        print(f"\n{one['split']}: {one['accuracy']} % with all honest, {one['undecidable']} % undecidable\n")
        print("| aggregator | " + " | ".join(ATTACKS) + " | fooled |\n|---|" + "---|" * (len(ATTACKS) + 1))
        for name, lost in one["lost"].items():
            print(
                f"| {name} | "
                + " | ".join(f"{points:.1f}" for points in lost.values())
                + f" | {one['fooled'][name]:.0f} |"
            )
    words = {"sites": said.sites, "bad": 3 * said.sites // 10, "seeds": said.seeds, **course._asdict()}
    print(json.dumps({**words, "tables": tables}))


if __name__ == "__main__":
    main()
