"""Maps of shapes whose distances are known."""

import numpy as np
import pytest

from wardround.partners.similarity.site_map import map_of, place_sites


def distances_of(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


@pytest.mark.parametrize(
    "points",
    [
        [[0, 0], [4, 0], [0, 3]],  # the triangle of 3, 4 and 5
        [[0, 0], [1, 0], [1, 1], [0, 1]],  # a square: two equal eigenvalues
        [[0, 0], [1, 0], [5, 0]],  # all on a line
        [[0, 0], [2, 0]],
    ],
)
def test_known_shapes_come_back(points: list[list[float]]) -> None:
    distances = distances_of(np.array(points, float))
    places = place_sites(distances)
    np.testing.assert_allclose(distances_of(places.positions), distances, atol=1e-7)
    np.testing.assert_allclose(places.positions.mean(axis=0), 0, atol=1e-9)
    assert places.shown == pytest.approx(1.0)


def test_the_plane_shows_its_share() -> None:
    # Four corners of a regular tetrahedron: three equal eigenvalues, of which the plane shows two.
    assert place_sites(np.ones((4, 4)) - np.eye(4)).shown == pytest.approx(2 / 3)


def test_signs_do_not_depend_on_chance() -> None:
    points = np.array([[0, 0], [4, 0], [0, 3]], float)
    first = place_sites(distances_of(points)).positions
    # Mirrored and turned, the distances are the same, and so is the map.
    turned = place_sites(distances_of(points[:, ::-1] * [-1, 1])).positions
    np.testing.assert_allclose(first, turned, atol=1e-9)
    farthest = np.abs(first).argmax(axis=0)
    assert (first[farthest, [0, 1]] > 0).all()


def test_sites_without_answer_are_left_out() -> None:
    points = np.array([[0, 0], [4, 0], [9, 9], [0, 3]], float)
    distances = distances_of(points)
    distances[2, :] = distances[:, 2] = np.nan
    places = place_sites(distances)
    assert np.isnan(places.positions[2]).all()
    keep = [0, 1, 3]
    np.testing.assert_allclose(distances_of(places.positions[keep]), distances[np.ix_(keep, keep)], atol=1e-7)


def test_identical_sites_lie_on_each_other() -> None:
    places = place_sites(np.zeros((3, 3)))
    assert (places.positions == 0).all()
    assert places.shown == 1.0
    # Estimates may fall below 0, which is no distance either.
    assert (place_sites(np.full((3, 3), -0.01)).positions == 0).all()


def test_one_site_and_none() -> None:
    assert place_sites(np.zeros((1, 1))).positions.tolist() == [[0.0, 0.0]]
    assert place_sites(np.zeros((0, 0))).positions.shape == (0, 2)
    assert np.isnan(place_sites(np.full((2, 2), np.nan)).positions).all()


def test_the_map_names_the_sites_shown() -> None:
    points = np.array([[0, 0], [4, 0], [0, 3]], float)
    told = map_of(["a", "b", "c"], distances_of(points), (0, 1))
    assert set(told["positions"]) == {"a", "b"}
    (a, _), (b, _) = told["positions"]["a"], told["positions"]["b"]
    assert abs(a - b) == pytest.approx(4)
