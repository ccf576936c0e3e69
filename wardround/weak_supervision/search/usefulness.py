"""How useful a function seems to one site: a small network from its votes on the site's records to the expert's answer.

Caldas 2022, algorithm 1 (h_k): two hidden layers of 10, Adam, trained on the functions that the expert has judged,
stopped when the loss no longer falls. Written for one site in NumPy: shapes differ from site to site, and a compiled
program for each would cost more than it computes.
"""

from itertools import pairwise
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
HIDDEN, STEPS, RATE, PATIENCE = 10, 60, 0.03, 5
SMALLEST_GAIN = 1e-4


def seen_votes(fired: Values, labels: Values, classes: int) -> Values:
    """(functions, records x classes): a function's votes as a site sees them, scaled to the same length."""
    found = np.zeros((len(labels), classes, fired.shape[0]), np.float32)
    found[np.arange(len(labels)), labels] = fired.T
    flat = found.reshape(len(labels), classes * fired.shape[0])
    return np.asarray(flat / np.maximum(np.sqrt(flat.sum(axis=1, keepdims=True)), 1.0))


def usefulness(judged: Values, answers: Values, candidates: Values, seed: int) -> Values:
    """The chance that the expert would accept each candidate; 1/2 before anything is judged."""
    if not len(answers):
        return np.full(len(candidates), 0.5)
    generator = np.random.default_rng(seed)
    sizes = (judged.shape[1], HIDDEN, HIDDEN, 1)
    weights = [generator.normal(0, np.sqrt(2 / max(1, a)), (a, b)).astype(np.float32) for a, b in pairwise(sizes)]
    params = [*weights, *(np.zeros(b, np.float32) for b in sizes[1:])]
    first, second = [np.zeros_like(one) for one in params], [np.zeros_like(one) for one in params]
    target, best, waited = answers.astype(np.float32)[:, None], np.inf, 0
    for step in range(1, STEPS + 1):
        layers = forward(params, judged)
        chance = sigmoid(layers[-1])
        loss = float(-np.mean(target * np.log(chance + 1e-7) + (1 - target) * np.log(1 - chance + 1e-7)))
        waited = 0 if loss < best - SMALLEST_GAIN else waited + 1
        best = min(best, loss)
        if waited >= PATIENCE:
            break
        for place, gradient in enumerate(backward(params, layers, (chance - target) / len(target))):
            first[place] = 0.9 * first[place] + 0.1 * gradient
            second[place] = 0.999 * second[place] + 0.001 * gradient**2
            size = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            params[place] = params[place] - size * first[place] / (np.sqrt(second[place]) + 1e-8)
    return np.asarray(sigmoid(forward(params, candidates)[-1])[:, 0], np.float64)


def sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -30, 30))))


def forward(params: list[Values], x: Values) -> list[Values]:
    layers = [x]
    for place in range(3):
        x = x @ params[place] + params[3 + place]
        x = np.maximum(x, 0) if place < 2 else x
        layers.append(x)
    return layers


def backward(params: list[Values], layers: list[Values], back: Values) -> list[Values]:
    found: list[Values] = [back] * 6
    for place in (2, 1, 0):
        found[place], found[3 + place] = layers[place].T @ back, back.sum(axis=0)
        if place:
            back = (back @ params[place].T) * (layers[place] > 0)
    return found
