"""Compression of the model that is sent, and dropout of filters, on CIFAR-10: figures 2.3 to 2.5 in small form.

The all-convolutional "Model C" (Springenberg et al. 2015), with 16 and 32 filters a layer where the paper has 96 and
192; pictures dealt out at random to 100 clients with 500 each, some in a round, one pass in batches of 10. Accuracy on
the test pictures of 40 clients (4,000), the same for all methods; other first models and cohorts in every repeat. The
tables show which settings follow the uncompressed run, not what such a network can reach: the thesis trains for
hundreds of rounds.

    python -m benchmarks.cifar --study parts    # which part of moderate and width 0.75 costs what (figure 2.5)
    python -m benchmarks.cifar --study widths   # figure 2.4
    python -m benchmarks.cifar --study down     # figure 2.3
    python -m benchmarks.cifar --study scales   # how large activations of parts are beside the whole model's

print the tables of docs/results/cifar.md (rescaled: by N / n; root: by its root); need WARDROUND_DATA with the folder
cifar10. `--setups` names single rows, `--keep FILE` writes every run as it ends and takes from there what is done.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kept_runs import read_runs
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.core.chain import chain
from wardround.core.contracts import Params, Transform, intensities
from wardround.core.errors import Diverged
from wardround.core.sub_models import cut_out, unit_counts
from wardround.data.datasets.images.cifar10 import cifar10
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.images.all_conv import KERNELS, STRIDES, all_conv
from wardround.transforms.compression import compression
from wardround.transforms.hadamard import hadamard
from wardround.transforms.kashin import kashin
from wardround.transforms.quantize import quantize
from wardround.transforms.subsample import subsample

CLIENTS, JUDGED = 100, 40
WIDTHS = (0.875, 0.75, 0.625, 0.5)
BASES, BITS, FRACTIONS = ("none", "hadamard", "kashin"), (2, 4), (1.0, 0.5)


Rescale = Literal["no", "sums", "spread"]


class Setup(NamedTuple):
    transform: Transform | None = None
    width: float = 1.0
    rescale: Rescale = "no"


class Plan(NamedTuple):
    """What all runs of a table share."""

    rounds: int
    cohort: int
    filters: int
    rate: float


def down(basis: str, fraction: float, bits: int) -> Transform:
    """Only the model that goes to the sites is compressed: turned, thinned, rounded."""
    rotations = {"none": [], "hadamard": [hadamard(direction="down")], "kashin": [kashin(direction="down")]}
    thinned = [subsample(fraction=fraction, direction="down")] if fraction < 1 else []
    return chain([*rotations[basis], *thinned, quantize(bits=bits, direction="down")])


def setups() -> dict[str, Setup]:
    moderate = compression()
    parts = {
        "conservative": Setup(compression(scheme="conservative")),
        "moderate": Setup(moderate),
        "moderate, down only": Setup(compression(direction="down")),
        "moderate, up only": Setup(compression(direction="up")),
        "moderate, width 0.75": Setup(moderate, 0.75),
        "moderate, width 0.75 rescaled": Setup(moderate, 0.75, "sums"),
        "moderate, width 0.75 root": Setup(moderate, 0.75, "spread"),
    }
    grid = {
        f"down: {basis}, s {fraction:g}, q {bits}": Setup(down(basis, fraction, bits))
        for fraction in FRACTIONS
        for bits in BITS
        for basis in BASES
    }
    plain = {f"width {width:g}": Setup(width=width) for width in WIDTHS}
    rescaled = {f"width {width:g} rescaled": Setup(None, width, "sums") for width in WIDTHS}
    by_root = {f"width {width:g} root": Setup(None, width, "spread") for width in WIDTHS}
    return {"uncompressed": Setup(), **parts, **plain, **rescaled, **by_root, **grid}


STUDIES: Mapping[str, tuple[str, ...]] = {
    "parts": (
        "conservative", "moderate", "moderate, down only", "moderate, up only",
        "width 0.75", "width 0.75 rescaled", "width 0.75 root",
        "moderate, width 0.75", "moderate, width 0.75 rescaled", "moderate, width 0.75 root",
    ),
    "widths": tuple(name for name in setups() if name.startswith("width ")),
    "down": tuple(name for name in setups() if name.startswith("down: ")),
}  # fmt: skip


def run(federation: Any, setup: Setup, plan: Plan, seed: int) -> dict[str, Any]:
    """Accuracy and loss after half of the rounds and after all; none where training diverged before."""
    model = all_conv(federation.task, filters=plan.filters)
    settings: dict[str, Any] = {"learning_rate": plan.rate, "batch_size": 10}
    if setup.width == 1.0:
        algorithm = fed_avg(model, weighted_mean(), **settings)
    else:
        settings |= {"width": setup.width, "rescale": setup.rescale != "no"}
        settings |= {} if setup.rescale == "no" else {"rescale_to": setup.rescale}
        algorithm = federated_dropout(model, weighted_mean(), **settings)
    who, judged = random_cohort(CLIENTS, plan.cohort, seed), np.arange(JUDGED)
    with Simulation(
        federation, seed=seed, transform=setup.transform, largest_cohort=plan.cohort, evaluated=judged
    ) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
        sent, returned = engine.message_bytes(algorithm, progress)
        accuracies: list[float] = []
        losses: list[float] = []
        done = 0
        for look in looks_of(plan.rounds):
            some = [(number, who.cohort(number)) for number in range(done + 1, look + 1)]
            try:
                progress, _ = engine.train(algorithm, progress, some)
            except Diverged as why:
                print(f"  {why}", file=sys.stderr, flush=True)
                missing = len(looks_of(plan.rounds)) - len(accuracies)
                accuracies, losses = accuracies + missing * [math.nan], losses + missing * [math.nan]
                break
            quality = engine.judge(algorithm, progress, "test")
            accuracies.append(math.nan if quality.accuracy is None else quality.accuracy)
            losses.append(quality.mean_loss)
            done = look
            print(f"  round {look}: {accuracies[-1]:.4f}, loss {losses[-1]:.3f}", file=sys.stderr, flush=True)
    return {"accuracies": accuracies, "losses": losses, "bytes_down": sent, "bytes_up": returned}


def looks_of(rounds: int) -> list[int]:
    return sorted({max(1, rounds // 2), rounds})


def activations(params: Params, x: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The root mean square of what each layer shows, by the compiler's own convolution; and the outputs."""
    found, shown = [], 4.0 * (jnp.asarray(x) - 0.5)
    last = len(KERNELS) - 1
    for index, stride in enumerate(STRIDES):
        shown = jax.lax.conv_general_dilated(
            shown, params[f"conv_{index}/kernel"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        shown = shown + params[f"conv_{index}/bias"]
        shown = shown if index == last else jax.nn.relu(shown)
        found.append(float(jnp.sqrt(jnp.mean(jnp.square(shown)))))
    outputs = np.asarray(jnp.mean(shown, axis=(1, 2)))
    return np.array(found), outputs - outputs.mean(axis=0)


def print_scales(federation: Any, plan: Plan, seeds: int, width: float = 0.75) -> None:
    """Activations of untrained parts in times of the whole model's, layer by layer (geometric means).

    The last column: the correlation over pictures of a part's outputs with the whole's.
    """
    model, x = all_conv(federation.task, filters=plan.filters), intensities(federation.x[:50])
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    alike: dict[str, list[float]] = {}
    for seed in range(seeds):
        whole = model.init(jax.random.key(seed))
        counts = unit_counts(model.units, whole)
        rng = np.random.default_rng(seed)
        chosen = {
            layer: jnp.array(np.sort(rng.permutation(count)[: round(width * count)])) for layer, count in counts.items()
        }
        part, (usual, outputs) = cut_out(model.units, whole, chosen), activations(whole, x)
        for name, times in (("as it is", 1.0), ("N / n", 1 / width), ("root of N / n", width**-0.5)):
            larger = {
                key: array * times if key.endswith("kernel") and not key.startswith("conv_0") else array
                for key, array in part.items()
            }
            own, told = activations(larger, x)
            found.setdefault(name, []).append(own / usual)
            alike.setdefault(name, []).append(float(np.corrcoef(told.ravel(), outputs.ravel())[0, 1]))
    print(
        "| taken from n of N filters | " + " | ".join(f"layer {one + 1}" for one in range(len(KERNELS))) + " | alike |"
    )
    print("|---|" + "---|" * (len(KERNELS) + 1))
    for name, ratios in found.items():
        means = np.exp(np.mean(np.log(ratios), axis=0))
        print(f"| {name} | " + " | ".join(f"{one:.2f}" for one in means) + f" | {np.mean(alike[name]):.2f} |")


def print_table(found: Mapping[str, list[dict[str, Any]]], plan: Plan) -> None:
    """Bytes in times of the uncompressed run's, mean accuracies, and each seed's difference to the same seed of it."""
    plain = found["uncompressed"]
    heads = " | ".join(f"round {look}" for look in looks_of(plan.rounds))
    print(f"| | seeds | smaller down | up | {heads} | points to uncompressed, seed by seed | loss |")
    print("|---|---|---|---|" + "---|" * (len(looks_of(plan.rounds)) + 2))
    for name, runs in found.items():
        sent = " | ".join(f"{plain[0][way] / runs[0][way]:.1f} ×" for way in ("bytes_down", "bytes_up"))
        means = np.mean([one["accuracies"] for one in runs], axis=0)
        right = " | ".join("diverged" if np.isnan(one) else f"{100 * one:.1f} %" for one in means)
        by_seed = {one["seed"]: one["accuracies"][-1] for one in plain}
        apart = [100 * (one["accuracies"][-1] - by_seed[one["seed"]]) for one in runs if one["seed"] in by_seed]
        told = "" if name == "uncompressed" else ", ".join(f"{one:+.1f}" for one in apart if not np.isnan(one))
        loss = np.mean([one["losses"][-1] for one in runs])
        print(f"| {name} | {len(runs)} | {sent} | {right} | {told} | {loss:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compression and dropout on CIFAR-10; prints a table.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cohort", type=int, default=5)
    parser.add_argument("--filters", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--study", choices=[*STUDIES, "scales"], default="parts")
    parser.add_argument("--setups", nargs="*", choices=list(setups()))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    plan = Plan(options.rounds, options.cohort, options.filters, options.rate)
    kept: Path | None = options.keep
    done = read_runs(kept)
    federation = cifar10(clients=CLIENTS)
    if options.study == "scales":
        print_scales(federation, plan, options.repeats)
        return
    names = STUDIES[options.study] if options.setups is None else options.setups
    found: dict[str, list[dict[str, Any]]] = {}
    # Seed by seed, so that a study stopped early has pairs to compare.
    for seed in range(options.repeats):
        for name in ["uncompressed", *(one for one in names if one != "uncompressed")]:
            key = {"setup": name, "seed": seed, **plan._asdict()}
            one = next((old for old in done if key.items() <= old.items()), None)
            if one is None:
                print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
                one = {**key, **run(federation, setups()[name], plan, seed)}
                if kept:
                    with kept.open("a") as file:
                        file.write(json.dumps(one) + "\n")
            found.setdefault(name, []).append(one)
    print_table(found, plan)


if __name__ == "__main__":
    main()
