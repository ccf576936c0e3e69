"""Histograms by hand, noise by its formula, distances against independent formulas, and nothing else in a message."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency

from wardround.core.codes.json_arrays import pack
from wardround.core.contracts import Message, Site, Task
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.partners.similarity.histograms import Histograms, ask_histograms, complete_counts, differences
from wardround.privacy.discrete_laplace import noise_variance
from wardround.queries.cells_of import ColumnCells, cells_of

NO_ROWS = (np.zeros((1, 1), np.float32), np.zeros(1, np.int32))


def engine_of(tables: dict[str, pd.DataFrame], silent: tuple[str, ...] = ()) -> Simulation:
    """Sites with these tables; the silent ones are in the study but have none to tell about."""
    federation = assemble([(name, [NO_ROWS] * 3) for name in (*tables, *silent)], Task((1,), ("no", "yes")))
    return Simulation(federation, tables=[Site(name, table) for name, table in tables.items()])


def told_of(counts: list[list[float]], **fields: object) -> Histograms:
    column = ColumnCells("sign", names=tuple("abcdefgh"[: len(counts[0]) - 2]))
    return Histograms(tuple(f"site-{i}" for i in range(len(counts))), (column,), (np.array(counts, float),), **fields)


def multinomial_tables(generator: np.random.Generator, sizes: list[int]) -> dict[str, pd.DataFrame]:
    """Sites that draw from one distribution: two numbers, a word, some of it missing."""
    tables = {}
    for i, rows in enumerate(sizes):
        age = np.round(generator.normal(40, 15, rows))
        word = generator.choice(["a", "b", "c", None], rows, p=[0.5, 0.3, 0.12, 0.08])
        value = np.where(generator.random(rows) < 0.06, np.nan, generator.exponential(1e-3, rows))
        tables[f"site-{i}"] = pd.DataFrame({"age": age, "word": word, "value": value})
    return tables


def test_what_was_withheld_is_filled_in_as_the_others_lead_to_expect() -> None:
    # Site 0 tells [96, 0]; site 1 [54, 6]. Pooled share of the second cell: 6 / 156. Expected at site 0:
    # 96 * 6 / 156 = 3.692, below the 4 that may have been withheld.
    cells = complete_counts(np.array([[96.0, 0.0], [54.0, 6.0]]), np.zeros(2), 5)
    np.testing.assert_allclose(cells, [[96 - 3.6923077, 3.6923077], [54, 6]])
    # With 8 times the patients 29.5 are expected, but 4 at most were withheld.
    cells = complete_counts(np.array([[768.0, 0.0], [54.0, 6.0]]), np.zeros(2), 5)
    assert cells[0, 1] == pytest.approx(min(4.0, 768 * 6 / 828))
    # A sum that was told is dealt out whole: 6 over cells 1 and 2 in the proportion 6 : 3 of the other site.
    cells = complete_counts(np.array([[50.0, 0.0, 0.0], [50.0, 6.0, 3.0]]), np.array([6.0, 0.0]), 5)
    np.testing.assert_allclose(cells[0], [50, 4, 2])


def test_without_a_seed_the_noise_is_not_repeated() -> None:
    site = Site("a", pd.DataFrame({"x": np.arange(500.0)}))
    message = Message({"columns": pack([ColumnCells("x", (100.0, 300.0), number=True)._asdict()])})
    query = cells_of(epsilon=0.01, smallest_cell=1, seed=None)
    answers = [query.ask(message, site).arrays["cells_0"].tolist() for _ in range(3)]
    assert len({tuple(answer) for answer in answers}) > 1


def test_distances_by_hand() -> None:
    told = told_of([[50, 50, 0, 0], [90, 10, 0, 0]])
    found = differences(told)
    # 1/2 (0.4² / 1.4 + 0.4² / 0.6) = 0.190476; chance: one degree of freedom, (1/100 + 1/100) / 4 = 0.005.
    assert found.chance[0, 0, 1] == pytest.approx(0.005)
    assert found.distance[0, 0, 1] == pytest.approx(0.190476 - 0.005, abs=1e-6)
    assert found.variation[0, 0, 1] == pytest.approx(0.4)
    assert found.distance[0, 0, 1] == found.distance[0, 1, 0]


def test_significance_is_pearson_chi_square() -> None:
    counts = [[30, 50, 20, 5], [80, 61, 40, 9]]
    found = differences(told_of(counts))
    reference = chi2_contingency(np.array(counts), correction=False)
    assert found.p[0, 0, 1] == pytest.approx(reference.pvalue)


def test_nothing_in_common_is_one_and_the_same_is_chance_below_zero() -> None:
    apart = differences(told_of([[1000, 0, 0, 0], [0, 1000, 0, 0]]))
    assert apart.distance[0, 0, 1] + apart.chance[0, 0, 1] == pytest.approx(1.0)
    same = differences(told_of([[30, 20, 10, 0], [30, 20, 10, 0]]))
    assert same.distance[0, 0, 1] == pytest.approx(-same.chance[0, 0, 1])
    assert same.p[0, 0, 1] == pytest.approx(1.0)


def test_sites_alike_are_at_distance_zero_beyond_chance() -> None:
    """Sites of unequal size from one distribution: no bias, errors that fit, p-values as chance has them."""
    generator = np.random.default_rng(0)
    distance, standardized, p = [], [], []
    pairs = np.triu_indices(4, 1)
    for _ in range(40):
        found = differences(ask_histograms(engine_of(multinomial_tables(generator, [60, 90, 140, 250]))))
        mean, error, chance = found.overall
        distance += mean[pairs].tolist()
        standardized += (mean / error)[pairs].tolist()
        p += found.p[:, pairs[0], pairs[1]].ravel().tolist()
    # 240 pairs, of which those of one federation hang together: about 120 independent ones.
    assert abs(np.mean(standardized)) < 0.3
    assert 0.6 < np.std(standardized) < 1.3
    assert abs(np.mean(distance)) < 0.15 * np.mean(chance)
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.08


@pytest.mark.parametrize(("top", "expected"), [(70, -0.0048), (35, 0.135)])
def test_noise_does_not_pass_for_a_difference(top: float, expected: float) -> None:
    """Two sites of 700, noise of standard deviation 28: alike they stay at 0 or below; what differs is understated.

    Uniform to 70 the three cells hold 2/7, 3/7, 2/7; to 35 they hold 4/7, 3/7, 0: without noise the distance is
    1/2 (4/49 / (6/7) + 4/49 / (2/7)) = 0.190. The floor of 28 / 700 = 0.0404 a site makes it
    1/2 (0.0816 / (0.857 + 0.081) + 0.0816 / (0.286 + 0.081)) = 0.155. The empty cell is told as the positive half of
    the noise, 10 patients or 0.0143 on average: 1/2 (0.2857 - 0.0143)² / (0.367 + 0.0143) is 0.015 less. And the noise
    in cells that are all but empty is taken off in full, though the cut at 0 left half: another 0.005, which is all
    there is where the sites are alike.
    """
    column = ColumnCells("x", (20.0, 50.0), number=True)
    message = Message({"columns": pack([column._asdict()])})
    generator = np.random.default_rng(3)
    distance, chance = [], []
    for seed in range(100):
        tables = [pd.DataFrame({"x": generator.uniform(0, high, 700)}) for high in (70, top)]
        query = cells_of(epsilon=0.05, smallest_cell=1, seed=seed)
        told = query.combine([query.ask(message, Site(str(i), one)) for i, one in enumerate(tables)])["sites"]
        counts = np.array([told[name]["x"]["cells"] for name in ("0", "1")], float)
        found = differences(Histograms(("0", "1"), (column,), (counts,), noise_variance(0.05)))
        distance.append(found.distance[0, 0, 1])
        chance.append(found.chance[0, 0, 1])
    # Without noise chance would be 2 * (2 / 700) / 4 = 0.0014; the noise makes it several times that.
    assert np.mean(chance) > 0.005
    assert abs(np.mean(distance) - expected) < 4 * np.std(distance) / np.sqrt(len(distance))


def test_common_edges_follow_the_values_whatever_their_unit() -> None:
    generator = np.random.default_rng(4)
    tables = {
        f"site-{i}": pd.DataFrame(
            {
                "flag": generator.integers(0, 2, 200),
                "temperature": np.round(generator.normal(37.5, 0.8, 200), 1),
                "dose": generator.exponential(2e-4, 200),
                "cells": generator.normal(-3e6, 5e5, 200),
            }
        )
        for i in range(3)
    }
    told = ask_histograms(engine_of(tables))
    columns = {column.name: column for column in told.columns}
    assert len(columns["flag"].edges) == 1
    assert 0 < columns["flag"].edges[0] <= 1
    for name in ("temperature", "dose", "cells"):
        shares = told.shares(list(columns).index(name)).mean(axis=0)[:-1]
        assert 4 <= len(shares) <= 9
        assert shares.max() < 0.4, name
    # Without noise counts are told in whole cells of 5: exact ones between other edges would differ by single patients.
    exact = [(table["flag"] == 0).sum() for table in tables.values()]
    assert told.counts[0][:, 0].tolist() == [number - number % 5 for number in exact]


def test_flags_words_and_numbers_written_differently_meet() -> None:
    tables = {
        "a": pd.DataFrame({"flag": [True] * 10 + [False] * 10, "code": ["1"] * 10 + ["x"] * 10}),
        "b": pd.DataFrame({"flag": ["yes"] * 15 + ["no"] * 5, "code": [1.0] * 20}),
    }
    told = ask_histograms(engine_of(tables))
    assert told.columns[0].names == ("no", "yes")
    np.testing.assert_array_equal(told.counts[0], [[10, 10, 0, 0], [5, 15, 0, 0]])
    assert told.columns[1].names == ("1", "x")
    # Site b may have had up to 4 of "x", told as 0, and a like site would have: they are filled in, no more.
    np.testing.assert_allclose(told.counts[1], [[10, 10, 0, 0], [16, 4, 0, 0]])


def test_the_budget_is_shared_out_over_the_columns() -> None:
    tables = {"a": pd.DataFrame({name: np.arange(60.0) for name in "uvw"})}
    assert ask_histograms(engine_of(tables), epsilon=6.0, seed=1).noise == pytest.approx(noise_variance(6.0 / 3 * 0.75))
    assert ask_histograms(engine_of(tables), epsilon=0.0).noise == 0


def test_with_noise_the_range_is_still_found() -> None:
    generator = np.random.default_rng(2)
    tables = {f"site-{i}": pd.DataFrame({"age": generator.normal(40, 12, 400)}) for i in range(4)}
    told = ask_histograms(engine_of(tables), epsilon=2.0, seed=7)
    assert 3 <= len(told.columns[0].edges) <= 16
    assert -20 < told.columns[0].low < 40 < told.columns[0].high < 120
    np.testing.assert_allclose(told.counts[0].sum(axis=1), 400, atol=40)


def test_who_has_not_answered_has_no_distance() -> None:
    told = ask_histograms(
        engine_of({"a": pd.DataFrame({"x": ["p"] * 9}), "b": pd.DataFrame({"x": ["q"] * 9})}, ("late",))
    )
    found = differences(told)
    assert np.isnan(told.counts[0][2]).all()
    assert np.isfinite(found.distance[0, 0, 1])
    assert np.isnan(found.distance[0, 2]).all()
    nobody = ask_histograms(engine_of({}, ("late", "later")))
    assert nobody.columns == ()
    assert differences(nobody).distance.shape == (0, 2, 2)
