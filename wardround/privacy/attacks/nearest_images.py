"""What made-up images tell about the real ones that their generator learned from: nearest neighbours, membership.

- Nearest neighbours: of every made-up image, whether the nearest real one is among those learned from or among as many
  that were not. A generator that knows how such images look in general gives one half; one that repeats what it was
  shown gives more.
- Membership (Chen et al., "GAN-Leaks: A Taxonomy of Membership Inference Attacks against Generative Models", CCS 2020):
  a real image is taken for a member the nearer the nearest made-up one is. Needs nothing but made-up images.
- Membership by the discriminator (Hayes et al., "LOGAN: Membership Inference Attacks Against Generative Models", PETS
  2019): members look more real to it. It stays at its site, so this is the worst case: what a coordinator could find
  that reads the discriminator whole by its slopes.

Distances are root mean squares over pixels. An attack that finds nothing is worth what its positive control finds: give
it images of a generator that memorised (`memorized`).
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.privacy.attacks.membership import Membership, evaluate_attack

Images = np.ndarray[Any, Any]
AT_ONCE = 64
"""Rows whose distances from all others are held at a time."""


class Revealed(NamedTuple):
    """What an attacker gets from made-up images."""

    nearest_learned: float
    """Share of made-up images whose nearest real one was learned from; 0.5 is chance."""
    error: float
    """Its standard error at chance."""
    distances: tuple[float, float, float]
    """Medians of the distance to the nearest: from made-up to learned-from, made-up to others, and, for comparison,
    from others to learned-from."""
    membership: Membership


def nearest_distances(images: Images, among: Images) -> Images:
    """Of each image, the distance to the nearest of `among`."""
    one, other = (np.asarray(part, np.float64).reshape(len(part), -1) for part in (images, among))
    squares = np.square(other).sum(axis=1)
    found = []
    for begin in range(0, len(one), AT_ONCE):
        part = one[begin : begin + AT_ONCE]
        whole = np.square(part).sum(axis=1)[:, None] + squares - 2 * part @ other.T
        found.append(np.sqrt(np.maximum(whole.min(axis=1), 0.0) / one.shape[1]))
    return np.concatenate(found)


def attack_images(made: Images, learned: Images, others: Images, seed: int = 0) -> Revealed:
    """Of the larger group of real images as many are drawn as the smaller has, so that chance is one half."""
    if not len(made) or not len(learned) or not len(others):
        raise Refusal(
            "an attack on made-up images needs some, and real ones that were learned from and that were not",
            where="attack",
            remedy="set a test share",
        )
    generator, size = np.random.default_rng(seed), min(len(learned), len(others))
    learned, others = (np.asarray(one)[generator.permutation(len(one))[:size]] for one in (learned, others))
    to_learned, to_others = nearest_distances(made, learned), nearest_distances(made, others)
    scores = -np.concatenate([nearest_distances(real, made) for real in (learned, others)])
    between = nearest_distances(others, learned)
    nearer = (to_learned < to_others) + 0.5 * (to_learned == to_others)
    return Revealed(
        float(nearer.mean()),
        0.5 / float(np.sqrt(len(made))),
        (float(np.median(to_learned)), float(np.median(to_others)), float(np.median(between))),
        evaluate_attack(scores, np.repeat([1, 0], size), float(np.median(scores))),
    )


def memorized(learned: Images, count: int, *, noise: float = 0.02, seed: int = 0) -> Images:
    """What a generator that memorised would make: images learned from, with a little noise."""
    generator = np.random.default_rng(seed)
    drawn = np.asarray(learned, np.float64)[generator.integers(0, len(learned), count)]
    return np.clip(drawn + noise * generator.normal(size=drawn.shape), 0.0, 1.0)
