"""Shapes by sums over sites: planted ones are found, rare ones dropped, radii large enough for every member."""

import numpy as np

from wardround.weak_supervision.search.kinds import shape_search
from wardround.weak_supervision.search.shapes import largest_radii, own_templates, step_of, sums_by_shape
from wardround.weak_supervision.series import squared_distances, z_normalised

TIME = np.linspace(0, 1, 24)
SHAPES = [np.sin(6 * TIME), np.exp(-((TIME - 0.5) ** 2) / 0.01), TIME]


def series(kinds, seed):
    generator = np.random.default_rng(seed)
    return np.concatenate([SHAPES[kind] + 0.05 * generator.normal(size=(30, 24)) for kind in kinds])


def test_planted_shapes_are_found_and_one_that_few_sites_have_is_dropped():
    import pandas as pd

    from wardround.core.contracts import Site
    from wardround.weak_supervision.series import sample_columns

    sites = [
        Site(str(place), pd.DataFrame(series(kinds, place), columns=sample_columns("b", 24)))
        for place, kinds in enumerate([(0, 1), (0, 1), (0, 1, 2), (0, 1)])
    ]
    search = shape_search("b", 24, 5, 3, 8, 0.2, 0)
    state, exchanges = search.begin(), 0
    while (asked := search.question(state)) is not None:
        state = search.step(state, search.answers(asked, sites))
        exchanges += 1
    pool = search.pool(state)
    near = np.sqrt(squared_distances(z_normalised(np.array(SHAPES)), pool["templates"]))
    assert exchanges == search.most
    assert (near[:2].min(axis=1) < 1.0).all(), "two shapes that all sites have"
    assert near[2].min() > 2.0, "one that a single site has"
    assert len(search.functions(pool, "x")) == len(pool["radii"]) > 1


def test_a_template_is_the_mean_of_enough_series():
    rows = np.concatenate([series((0,), 0), series((1,), 1)[:3]])
    templates, radii = own_templates(rows, 10, 0)
    outlier = z_normalised(SHAPES[1][None])
    assert len(templates)
    assert np.sqrt(squared_distances(outlier, templates)).min() > 2.0, "three series make no template"
    assert (radii > 0).all()
    assert len(own_templates(rows[:2], 10, 0)[0]) == 0
    assert len(own_templates(np.full((40, 24), np.nan), 1, 0)[0]) == 0


def test_the_largest_radius_on_the_grid():
    # Steps of 2 sqrt(4) / 32 = 0.125: radii of 0.3 and 0.51 lie in the third and fifth, which ends at 0.625.
    templates, centers = np.array([[1.0, -1.0, 1.0, -1.0]] * 2), np.array([[1.0, -1.0, 1.0, -1.0]])
    sums = sums_by_shape(templates, np.array([0.3, 0.51]), centers)
    assert step_of(4) == 0.125
    assert largest_radii(sums["radii"], 4).tolist() == [0.625]
    assert sums["templates"].tolist() == [2.0]
    assert sums["sites"].tolist() == [1.0]
