"""Which units of sites' layers are the same, and their average: the Hungarian method, site after site.

Wang et al., ICLR 2020, equations 2 and 3: a site's units go to the places of the common layer at the least total cost,
which is the squared distance to what stands in a place, or the price of a new place, which rises with every one that is
opened. Every site is matched twice, the second time with what all the others became; the site with most patients gives
the first places. Recurrent weights lead from units to units, so they follow the matching and take no part in it.
"""

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from wardround.algorithms.images.matched_layers import MatchedLayers, split_row

Numbers = np.ndarray[Any, Any]
PASSES = 2


def match_units(units: Numbers, weight: Numbers, most: int = 0, price: float = 1.0) -> Numbers:
    """For every site, which of its units stands in each of the `most` places, -1 where none does.

    `units` has the shape (sites, units, numbers). A new place costs `price` mean squared lengths of a unit, and more
    the more are opened: at 1 it is opened for a unit that nothing explains better than any place does.
    """
    count = units.shape[1]
    most = max(most, count)
    places = np.full((len(units), most), -1)
    first, *others = np.argsort(-weight, kind="stable")
    places[first, :count] = np.arange(count)
    total = np.zeros(most)
    total[:count] = weight[first]
    mean = np.zeros((most, units.shape[2]))
    mean[:count] = units[first]
    new = price * float(np.square(units.astype(np.float64)).sum(2).mean())
    for turn in range(PASSES):
        for one in others:
            own, share = units[one].astype(np.float64), float(weight[one])
            if turn:  # taken out, and matched again with what all the others became
                mean, total = moved(mean, total, own, places[one], -share)
            square = np.square(mean).sum(1)[:, None] + np.square(own).sum(1) - 2 * mean @ own.T
            empty = np.flatnonzero(total <= 0)
            square[empty] = new * (1 + np.arange(len(empty)) / count)[:, None]
            rows, columns = linear_sum_assignment(square)
            places[one] = -1
            places[one, rows] = columns
            mean, total = moved(mean, total, own, places[one], share)
    return places


def moved(mean: Numbers, total: Numbers, own: Numbers, places: Numbers, share: float) -> tuple[Numbers, Numbers]:
    """The means with a site's units added, or taken out by a negative share; an empty place has zeros."""
    there = places >= 0
    after = np.where(there, total + share, total)
    after = np.where(np.abs(after) < 1e-9 * abs(share), 0.0, after)
    summed = mean * total[:, None] + np.where(there[:, None], own[np.maximum(places, 0)], 0.0) * share
    return np.where(after[:, None] > 0, summed / np.where(after == 0, 1.0, after)[:, None], 0.0), after


def match_layer(
    layers: MatchedLayers, phase: int, rows: Numbers, weight: Numbers, site: Numbers, sites: int, price: float
) -> tuple[Numbers, Numbers]:
    """The average layer as one row, and for every site which of its units stands in which place.

    The last layer, whose units are the classes, is averaged as it is. Of answers with numbers that are not finite there
    is no order: all is not a number, as any average of them would be, for whoever looks after diverged sites.
    """
    order = np.full((sites, layers.widest), -1, np.int32)
    mean = np.zeros(layers.longest, np.float32)
    there = np.flatnonzero(weight > 0)
    label = layers.names[phase] if phase < len(layers.names) else ""
    if label:
        # Who is not there keeps the first places, in which there are always units.
        order[:, : layers.own[label]] = np.arange(layers.own[label])
    if not len(there):
        return mean, order
    if not np.isfinite(rows[there]).all():
        return np.full_like(mean, np.nan), order
    given = [split_row(layers, phase, rows[row]) for row in there]
    places = None
    if label:
        units = np.stack([features(layers, one, label) for one in given])
        places = match_units(units, weight[there], layers.most[label], price)
        order[site[there], : layers.most[label]] = places
    at = 0
    for name in layers.arrays[phase]:
        own = [one[name] for one in given]
        found = average(own, weight[there], layers.forms[name].layers, label, places).ravel()
        mean[at : at + len(found)] = found
        at += len(found)
    return mean, order


def features(layers: MatchedLayers, arrays: dict[str, Numbers], label: str) -> Numbers:
    """One line a unit: all that goes into it from below, and what is added to it."""
    parts = []
    for name, array in arrays.items():
        axes = [axis for axis, one in enumerate(layers.forms[name].layers) if one == label]
        if len(axes) == 1:
            parts.append(np.moveaxis(array, axes[0], 0).reshape(array.shape[axes[0]], -1))
    return np.concatenate(parts, axis=1)


def average(
    arrays: list[Numbers], weight: Numbers, axes: tuple[str, ...], label: str, places: Numbers | None
) -> Numbers:
    """The weighted mean of every entry over the sites that have units in its places."""
    total: Any = 0.0
    heard: Any = 0.0
    for index, array in enumerate(arrays):
        laid, there = array.astype(np.float64), np.ones((1,) * array.ndim)
        for axis, one in enumerate(axes):
            if places is not None and one == label:
                own = places[index]
                laid = np.take(laid, np.maximum(own, 0), axis)
                there = there * (own >= 0).reshape([-1 if other == axis else 1 for other in range(array.ndim)])
        total = total + weight[index] * laid * there
        heard = heard + weight[index] * there
    found: Numbers = np.where(heard > 0, total / np.where(heard > 0, heard, 1.0), 0.0)
    return found
