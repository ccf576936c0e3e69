"""Votes of labeling functions as models see them: which class each is for, and what weighted votes say of a row."""

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array, Task
from wardround.core.errors import Refusal
from wardround.models.from_flax import refuse_masks


def class_places(task: Task, votes: tuple[str, ...], model: str) -> Array:
    """(functions, classes) with a 1 where a function votes for a class; refused where it votes for none of them."""
    where = f"model {model}"
    refuse_masks(task)
    if not task.classification:
        raise Refusal(
            f"labeling functions vote for classes, but the target is {'a number' if task.regression else 'survival'}",
            where=f"target {task.target!r}",
            remedy="declare the task a classification, or cut the number into classes",
        )
    if not votes:
        raise Refusal(
            f"the model '{model}' learns from votes, and the study has no labeling functions",
            where=where,
            remedy='add [[data.cleaning.rules]], or rules = "FILE" in [data.cleaning]',
        )
    unknown = [vote for vote in votes if vote not in task.classes]
    if unknown:
        raise Refusal(
            f"a labeling function votes for {unknown[0]!r}, and the classes are {', '.join(task.classes)}",
            where=where,
            remedy="correct its label",
        )
    if len(set(votes)) < 2:
        raise Refusal(
            f"all labeling functions vote for {votes[0]!r}, so nothing tells the classes apart",
            where=where,
            remedy="add a rule for another class",
        )
    if len(task.shape) != 1 or task.shape[0] < len(votes):
        raise Refusal(
            f"there are {len(votes)} functions, but a row has shape {task.shape}",
            where=where,
            remedy="let the study's rules make the columns of votes",
        )
    return np.array([[vote == one for one in task.classes] for vote in votes], np.float32)


def balance_of(task: Task, balance: tuple[float, ...], model: str) -> Array:
    """The share of every class; equal ones where nothing is said."""
    many = len(task.classes)
    shares = np.array(balance or [1.0] * many, np.float64)
    if shares.shape != (many,) or not np.isfinite(shares).all() or (shares <= 0).any():
        raise Refusal(
            f"the class balance {list(balance)} should be a number above 0 for each of {', '.join(task.classes)}",
            where=f"model {model}",
            remedy=f"give {many} shares in this order, or leave balance out for equal ones",
        )
    return np.asarray(shares / shares.sum(), np.float32)


def fired(columns: Array) -> Array:
    """1 where a function votes: its column is above 0, also after it was scaled."""
    return (columns > 0).astype(jnp.float32)


def log_posterior(cast: Array, weights: Array, places: Array, prior: Array) -> Array:
    """(rows, classes): log probabilities of the classes from the votes, a weight for each, and the class balance."""
    log_probabilities: Array = jax.nn.log_softmax((cast * weights) @ places + jnp.log(prior))
    return log_probabilities
