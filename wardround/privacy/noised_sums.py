"""Gaussian noise on sums and counts that a site tells once, such as a loss or a table of counts.

The noise comes from the operating system's random bits (ChaCha20 with a 256-bit key, drawn for each answer), in double
precision, and the noised numbers are rounded to a grid of about a millionth of the noise: their last bits, by which
floating-point noise can be attacked (Mironov, CCS 2012), do not leave. In a simulation the key may follow from the
study's seed, so that it can be repeated; such noise protects nobody.
"""

import hashlib
import json
import math
import os
from typing import Any

import numpy as np

from wardround.privacy.secure_sum.masks import stream

Numbers = np.ndarray[Any, Any]
FINE = 2.0**-20
LASTING = os.urandom(32)
"""Known to this process alone."""


def noise_key(seed: int | None, *words: str) -> bytes:
    """The key of one answer: fresh bits, or, of a simulation, bits that follow from its seed and these words."""
    return os.urandom(32) if seed is None else hashlib.sha256(json.dumps([seed, *words]).encode()).digest()


def gaussian_numbers(count: int, key: bytes) -> Numbers:
    """Independent standard normal numbers (Box and Muller 1958), up to 8.6 standard deviations."""
    pairs = -(-count // 2)
    words = np.frombuffer(stream(key).update(bytes(16 * pairs)), "<u8")
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    length, angle = np.sqrt(-2 * np.log(uniform[:pairs])), 2 * np.pi * uniform[pairs:]
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:count]


def with_gaussian_noise(values: Numbers, deviation: float, key: bytes) -> Numbers:
    """The values under noise of this standard deviation, on their grid; without noise (0) as they are."""
    exact = np.asarray(values, np.float64)
    if not deviation > 0:
        return exact
    step = 2.0 ** math.floor(math.log2(deviation * FINE))
    noise = deviation * gaussian_numbers(exact.size, key).reshape(exact.shape)
    return np.asarray(np.round((exact + noise) / step) * step)


def with_lasting_noise(values: Numbers, deviation: float, seed: int | None, *words: str) -> Numbers:
    """For numbers that are told again and again: the same value at the same place has the same noise.

    Noise that is drawn anew each time is gone from the mean of many answers. `words` say what is told; where a value
    changes, its noise is independent of the one before.
    """
    exact = np.asarray(values, np.float64)
    if not deviation > 0:
        return exact
    found = np.empty_like(exact)
    for value in np.unique(exact):
        said = json.dumps([seed, *words, float(value)]).encode()
        key = hashlib.sha256((LASTING if seed is None else b"") + said).digest()
        found = np.where(exact == value, with_gaussian_noise(exact, deviation, key), found)
    return np.asarray(found)
