"""Template: votes where a time series looks like a template.

Caldas, "Collaborative learning by leveraging siloed data", 2022, section 5.3.2: a template, a distance d_t and a label;
it fires where 1 / (1 + exp(d - d_t)) is at least `likelihood`, with d the Euclidean distance of the z-normalised
series. Equivalently, where d is at most d_t plus ln((1 - likelihood) / likelihood). A series with a gap is left alone.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import pandas as pd

from wardround.core.bounds import Bound, NotNegative
from wardround.core.components.recipes import recorded
from wardround.core.errors import Refusal
from wardround.weak_supervision.function import KIND, LabelingFunction, Values, settings
from wardround.weak_supervision.series import is_within, read_series, sample_columns, z_normalised

Likelihood = Annotated[float, Bound(low=0, high=1, open_low=True, open_high=True)]


@recorded(KIND)
def template(
    *, series: str, samples: tuple[float, ...], distance: NotNegative, label: str, likelihood: Likelihood = 0.2
) -> LabelingFunction:
    """Votes where a series, in the columns SERIES0, SERIES1, ..., is near a template."""
    if len(samples) < 2 or not np.isfinite(samples).all() or len(set(samples)) == 1:
        raise Refusal(
            "a template needs two finite samples or more that are not all the same",
            where=f"{KIND} template",
            remedy="give the samples of a series; its mean and scale do not matter",
        )
    given = settings(series=series, samples=samples, distance=distance, label=label, likelihood=likelihood)
    words = f"{series} is within {reach_of(distance, likelihood):.3g} of a template of {len(samples)} samples"
    return LabelingFunction("template", label, sample_columns(series, len(samples)), given, words, fires)


def reach_of(distance: float, likelihood: float) -> float:
    """The largest distance at which a template fires.

    >>> round(reach_of(3.0, 0.5), 3), round(reach_of(3.0, 0.2), 3)
    (3.0, 4.386)
    """
    return distance + math.log((1 - likelihood) / likelihood)


def fires(functions: Sequence[LabelingFunction], frame: pd.DataFrame) -> Values:
    given = [dict(one.given) for one in functions]
    name, length = str(given[0]["series"]), len(given[0]["samples"])
    templates = z_normalised(np.array([one["samples"] for one in given], np.float32))
    reach = np.array([reach_of(one["distance"], one["likelihood"]) for one in given])
    return is_within(z_normalised(read_series(frame, name, length)), templates, reach)
