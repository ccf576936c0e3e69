"""What all sites together know about the asking site's own coefficients, and what models lose there by that.

Every site's score and information at a model near the asking site's own (see `wardround.partners.probes.information`),
and the posterior over who means the same (see `wardround.partners.similarity.site_groups`). From these follow the
common model of any set of sites, and the loss of any model at the asking site, with its error, without training any.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core import trees
from wardround.core.contracts import Params, Tree
from wardround.core.errors import Refusal
from wardround.partners.choice import Question
from wardround.partners.probes.information import information, moved, sketch
from wardround.partners.similarity.histograms import Histograms
from wardround.partners.similarity.patient_distance import patients_apart
from wardround.partners.similarity.site_groups import Directions, SiteGroups, directions_of, group_sites

Numbers = np.ndarray[Any, Any]

MOST_TOLD = 30.0
"""Times the usual information of a patient beyond which an answer is not believed."""


class Knowledge(NamedTuple):
    """What all sites together told about each other."""

    sites: Numbers
    """The numbers of those that answered; everything else is in their order."""
    rows: Numbers
    told: Directions
    groups: SiteGroups
    model: Params
    """The model at which they were asked."""
    pull: float
    """How strongly training holds a model back, for each patient: as a ridge penalty of this strength would."""
    gone: Numbers
    """How far the model at which they were asked is from where training begins, coefficient by coefficient."""
    impossible: tuple[int, ...] = ()
    """The numbers of sites whose answers no patients could give; nothing they say is used."""

    def place_of(self, site: int) -> int:
        """Where the site of this number stands in what follows the order of those that answered."""
        return int(np.flatnonzero(self.sites == site)[0])

    def change_to(self, params: Params) -> Numbers:
        """A model's parameters as a change in the known directions."""
        leaves = zip(jax.tree.leaves(params), jax.tree.leaves(self.model), strict=True)
        change = np.concatenate([np.ravel(np.asarray(a, np.float64) - np.asarray(b, np.float64)) for a, b in leaves])
        return np.asarray(self.told.dual @ change)


def learn_from_sites(question: Question, told: Histograms | None = None, *, held_out: bool = False) -> Knowledge | None:
    """Asks all sites at the common model and again at the asking site's own; none where it has no one to compare.

    `told` are the sites' histograms, if they were asked for them. With `held_out` the asking site's validation patients
    speak too. That is for judging models that were trained, and partners that were chosen, without them.
    """
    known = ask_sites(question, question.train(question.everyone), told, held_out)
    if known is None:
        return None
    nearer = moved(known.model, known.told.basis @ known.groups.mean[known.place_of(question.user)])
    if nearer is None:
        return known
    again = ask_sites(question, nearer, told, held_out, known.pull)
    return again and again._replace(impossible=tuple(sorted({*known.impossible, *again.impossible})))


def ask_sites(
    question: Question, model: Params, told: Histograms | None, held_out: bool, pull: float | None = None
) -> Knowledge | None:
    """`pull` as it was found at a trained model; where none is said, this is one."""
    probe = information(question.model)
    said = [question.probe(probe, model)]
    if held_out:
        said.append(question.probe(probe._replace(part="validation"), model, [question.user]))
    counts = [np.asarray(one["rows"], np.float64) for one in said]
    rows = np.sum(counts, axis=0)
    sites = np.flatnonzero(np.isin(np.arange(len(rows)), question.everyone) & (rows > 1))
    slope, bend, spread = (mean_of(said, counts, name) for name in ("slope", "bend", "spread"))
    true = sites[is_possible(slope[sites], bend[sites], spread[sites])]
    impossible = tuple(int(site) for site in sites if site not in true)
    sites = true
    if question.user not in sites or len(sites) < 2:
        return None
    slope, bend, spread = slope[sites], bend[sites], spread[sites]
    rows = rows[sites]
    # Of a regression, the variance of the outcome around its prediction; of classes, 1.
    variance = float(rows @ spread / rows.sum())
    if variance <= 0:
        raise Refusal(
            "the model predicts every patient exactly, so sites cannot be told apart",
            remedy="look for a column that holds the target",
        )
    score = -slope * rows[:, None] / variance
    seen = directions_of(score, bend * rows[:, None, None] / variance)
    if not seen.basis.shape[1]:
        raise Refusal(
            "the gradients do not differ from patient to patient, so sites cannot be told apart",
            remedy="look for a target or columns that never vary",
        )
    apart = None if told is None else patients_apart(told, sites)
    gone = np.asarray(sketch(trees.subtract(model, question.params), slope.shape[1]), np.float64)
    held_back = pull_of(score.sum(axis=0), gone, float(rows.sum())) if pull is None else pull
    return Knowledge(sites, rows, seen, group_sites(seen, apart), model, held_back, gone, impossible)


def is_possible(slope: Numbers, bend: Numbers, spread: Numbers) -> Numbers:
    """Which sites' answers patients could give: numbers, information that is one, and no score without information.

    A patient's score has the information as its variance where the model is right, and not many times as much where it
    is not; and the information of a patient differs between sites by how rare the outcome is, not by magnitudes.
    """
    finite = np.isfinite(slope).all(axis=1) & np.isfinite(bend).all(axis=(1, 2)) & np.isfinite(spread) & (spread >= 0)
    safe = np.where(finite[:, None, None], bend, 0.0)
    amount = np.einsum("spp->sp", safe)
    # Off the diagonal no more than the diagonal allows, as of any covariance; rounding is forgiven.
    most = np.sqrt(np.maximum(amount[:, :, None] * amount[:, None, :], 0.0))
    allowed = 1e-4 * np.maximum(most.max(axis=(1, 2), initial=0.0), 1e-9)[:, None, None]
    whole = (amount >= -1e-9).all(axis=1) & (np.abs(safe) <= most + allowed).all(axis=(1, 2))
    total = amount.sum(axis=1)
    usual = float(np.median(total[finite & whole])) if (finite & whole).any() else 0.0
    scored = np.square(np.where(finite[:, None], slope, 0.0)).sum(axis=1)
    # Of a regression a patient's score grows with the spread of the outcome.
    least = np.maximum(total, usual) * np.maximum(1.0, np.where(finite, spread, 0.0))
    return np.asarray(finite & whole & (total <= MOST_TOLD * usual) & (scored <= MOST_TOLD * least))


def pull_of(score: Numbers, gone: Numbers, rows: float) -> float:
    """What a patient's ridge penalty would be with which a trained model is the best one.

    At a model w of the largest likelihood the score is 0; with a penalty of rows * pull * |w|² / 2, rows * pull * w.
    Training that ends before its time, or a penalty of the study's own, leaves such a score along the way it has gone.
    """
    square = float(gone @ gone)
    return max(0.0, float(score @ gone)) / (rows * square) if square > 0 else 0.0


def mean_of(said: Sequence[Tree], counts: Sequence[Numbers], name: str) -> Numbers:
    """Of what is told once or twice of every site's patients: the mean over all of them."""
    total = sum(
        np.einsum("s,s...->s...", rows, np.asarray(one[name], np.float64))
        for one, rows in zip(said, counts, strict=True)
    )
    return np.asarray(np.einsum("s,s...->s...", 1 / np.maximum(1, np.sum(counts, axis=0)), total))


def pooled(known: Knowledge, sites: tuple[int, ...]) -> Numbers:
    """The common model of these sites as it would be trained, as a change in the known directions.

    Held back as training holds back: else a partner that means something else would seem to help wherever a model of
    few patients, trained to its very end, would go too far.
    """
    chosen, basis = list(sites), known.told.basis
    held_back = known.pull * known.rows[chosen].sum()
    total = known.told.information[chosen].sum(axis=0) + held_back * basis.T @ basis
    # A hair of the information of everybody, so that a site without any patient of some kind has a model too.
    total = total + 1e-6 * np.eye(len(total))
    return np.asarray(np.linalg.solve(total, known.told.score[chosen].sum(axis=0) - held_back * basis.T @ known.gone))


def expected_gain(known: Knowledge, user: int, first: Numbers, second: Numbers) -> tuple[float, float]:
    """How much less the second of two models loses at the asking site, and the error of that.

    Both are changes in the known directions. With the truth at t and the information H of a patient, a model at c loses
    (c - t) H (c - t) / 2 more than the best: the difference of two such losses is linear in t.
    """
    weight = known.told.information[user] / known.rows[user]
    lever = weight @ (second - first)
    middle = (first + second) / 2
    variance = known.groups.covariance[:, user, user]
    return float(lever @ (known.groups.mean[user] - middle)), float(np.sqrt(np.sum(lever**2 * variance)))
