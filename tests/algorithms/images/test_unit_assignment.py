import numpy as np
from scipy.optimize import linear_sum_assignment

from wardround.algorithms.images.unit_assignment import average, match_units

RNG = np.random.default_rng(4)


def test_the_slides_example_of_two_permuted_layers():
    # Site B has the units of site A in the order 2, 0, 1: its unit in place 0 is A's 2, and so on.
    a = RNG.normal(size=(3, 4))
    order = np.array([2, 0, 1])
    b = a[order]
    places = match_units(np.stack([a, b]), np.array([2.0, 1.0]))
    assert places[0].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(b[places[1]], a)
    # Plain averaging mixes different units.
    assert np.abs((a + b) / 2 - a).max() > 0.1


def test_noisy_units_of_many_sites_are_found_again():
    units = RNG.normal(size=(6, 20))
    orders = [RNG.permutation(6) for _ in range(5)]
    sites = np.stack([units[order] + 0.1 * RNG.normal(size=units.shape) for order in orders])
    places = match_units(sites, np.arange(1.0, 6.0), most=9)
    first = orders[-1]  # the site with most patients gives the places
    for order, place in zip(orders, places, strict=True):
        assert order[place[:6]].tolist() == first.tolist()
        assert (place[6:] == -1).all()


def test_two_sites_are_matched_at_the_least_cost():
    # With two sites and no new places the second is simply assigned to the first, by SciPy's own squared distances.
    units = RNG.normal(size=(2, 7, 3))
    places = match_units(units, np.array([5.0, 4.0]))
    square = np.square(units[0][:, None] - units[1][None]).sum(axis=2)
    assert places[1].tolist() == linear_sum_assignment(square)[1].tolist()


def test_a_dear_place_is_not_opened():
    # Units of length 2 at right angles: squared distance 8 = 2 mean squared lengths (4). At a price of 1 the second
    # site's units get places of their own; the second of them costs 1 + 1/2 lengths, still less than 2. At a price of 3
    # there is no new one.
    units = np.zeros((2, 2, 4))
    units[0, 0, 0] = units[0, 1, 1] = units[1, 0, 2] = units[1, 1, 3] = 2.0
    weight = np.array([2.0, 1.0])
    cheap, dear = (match_units(units, weight, most=4, price=price) for price in (1.0, 3.0))
    assert sorted(np.flatnonzero(cheap[1] >= 0)) == [2, 3]
    assert sorted(np.flatnonzero(dear[1] >= 0)) == [0, 1]
    # A limit of three places leaves one of the two with the first site's.
    assert np.flatnonzero(match_units(units, weight, most=3)[1] >= 0)[-1] == 2


def test_a_mean_is_taken_over_those_who_are_there():
    # Place 0 has both (weights 3 and 1), place 1 the first site only, place 2 the second only, place 3 nobody.
    arrays = [np.float32([[1.0, 5.0]]), np.float32([[9.0, 7.0]])]
    places = np.array([[0, 1, -1, -1], [1, -1, 0, -1]])
    found = average(arrays, np.array([3.0, 1.0]), ("", "own"), "own", places)
    assert found.tolist() == [[(3 * 1 + 7) / 4, 5.0, 9.0, 0.0]]
    # Recurrent weights lead from units to units: an entry needs both.
    square = [np.float32([[1, 2], [3, 4]]), np.float32([[5, 6], [7, 8]])]
    found = average(square, np.array([1.0, 1.0]), ("own", "own"), "own", places)
    np.testing.assert_allclose(found, [[(1 + 8) / 2, 2, 7, 0], [3, 4, 0, 0], [6, 0, 5, 0], [0, 0, 0, 0]])
