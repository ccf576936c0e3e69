"""Label leakage: what the update of the last layer tells about the outcomes of a site's patients.

Zhao et al., "iDLG: Improved Deep Leakage from Gradients", 2020: with cross entropy the gradient of the last layer's
bias is the mean over the rows of (predicted probability - 1 for the true class). For one row it is below 0 at the true
class and nowhere else, so that the label can be read off. For many rows the share of every class is the mean prediction
minus the gradient (Wainakh et al., "User-Level Label Leakage from Gradients in Federated Learning", 2022); the
coordinator knows the model and guesses its mean prediction from made-up patients.

Needs a classification with a bias in its last layer, and the updates of single sites. Costs a few additions.
"""

import re
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Model, Params

GUESSES = 2048
"""Made-up patients from whom the mean prediction is guessed."""


def natural_order(name: str) -> list[Any]:
    """So that dense_10 comes after dense_9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def last_bias(params: Params, classes: int) -> str | None:
    """The name of the last layer's bias; none where the model has no such thing."""
    names = [name for name, array in params.items() if name.rsplit("/", 1)[-1] == "bias" and array.shape == (classes,)]
    return max(names, key=natural_order) if names else None


def label_of_one(bias_gradient: Any) -> int:
    """The label of the one row that a gradient was computed from."""
    return int(np.argmin(np.asarray(bias_gradient)))


def label_shares(bias_gradient: Any, mean_prediction: Any) -> np.ndarray[Any, Any]:
    """The share of every class among the rows that a gradient was computed from, as well as it can be told."""
    shares = np.clip(np.asarray(mean_prediction, np.float64) - np.asarray(bias_gradient, np.float64), 0.0, None)
    total = float(shares.sum())
    return shares / total if total > 0 else np.full(len(shares), 1 / len(shares))


def mean_prediction(model: Model, params: Params, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """The mean prediction for made-up patients: standard normal, as prepared columns are."""
    x = jax.random.normal(jax.random.key(seed), (GUESSES, *shape))
    return np.asarray(jax.jit(model.predict)(params, x)).mean(axis=0)
