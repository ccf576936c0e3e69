"""The made-up population: its law, its layout, and the same rows in memory and on disk."""

from pathlib import Path

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.data.datasets import synthetic_population as module
from wardround.data.datasets.synthetic_population import synthetic_population


def test_layout() -> None:
    federation = synthetic_population(clients=50, rows=10, features=4, classes=3, test=0.25)
    assert federation.x.shape == (500, 4)
    assert federation.counts.tolist() == [[8, 0, 2]] * 50  # a quarter of 10, rounded down
    assert federation.first.tolist() == list(range(0, 500, 10))
    assert federation.sites[49] == "client-49"
    assert set(federation.y) == {0, 1, 2}


def test_memory_and_disk_hold_the_same_rows_and_files_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 300)  # several chunks
    settings = {"clients": 200, "rows": 7, "features": 3, "spread": 0.8, "seed": 4}
    memory = synthetic_population(**settings)  # type: ignore[arg-type]
    disk = synthetic_population(**settings, folder=str(tmp_path))  # type: ignore[arg-type]
    assert isinstance(disk.x, np.memmap)
    np.testing.assert_array_equal(memory.x, disk.x)
    np.testing.assert_array_equal(memory.y, disk.y)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(path.suffix for path in files) == [".npy", ".npy"]
    synthetic_population(**settings, folder=str(tmp_path))  # type: ignore[arg-type]
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    synthetic_population(**{**settings, "seed": 5}, folder=str(tmp_path))  # type: ignore[arg-type]
    assert len(list(tmp_path.iterdir())) == 4


def test_chunks_never_cut_a_client_and_cover_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 10)
    # 4 + 5 fit in 10, the 3 does not; 25 is too large for any chunk and has one of its own.
    assert list(module._chunks(np.array([4, 5, 3, 25, 6, 4]))) == [(0, 2), (2, 3), (3, 4), (4, 6)]


def test_log_normal_sizes_have_the_mean_and_spread_asked_for() -> None:
    sizes = synthetic_population(clients=20_000, rows=100, spread=0.5, features=1).counts.sum(axis=1)
    assert sizes.mean() == pytest.approx(100, rel=0.02)
    assert np.log(sizes).std() == pytest.approx(0.5, rel=0.03)


def between_clients(degree: float) -> float:
    """Variance of the clients' mean features: degree² + 1 / rows by the law of total variance."""
    federation = synthetic_population(clients=2_000, rows=20, features=5, degree=degree)
    return float(federation.x.reshape(2_000, 20, 5).mean(axis=1).var())


def test_degree_zero_is_iid_and_clients_drift_apart_as_it_grows() -> None:
    for degree in (0.0, 0.3, 0.6, 1.0):
        # 10,000 means: relative standard error of a variance sqrt(2 / 10,000) = 0.014.
        assert between_clients(degree) == pytest.approx(degree**2 + 1 / 20, rel=0.06)


def test_classes_follow_the_softmax_of_the_common_weights() -> None:
    federation = synthetic_population(clients=4_000, rows=10, features=6, classes=2, degree=0.0, seed=1)
    weights = np.random.default_rng([1, 0]).normal(0, np.sqrt(2 / 6), (6, 2))
    ill = 1 / (1 + np.exp(-(federation.x @ (weights[:, 1] - weights[:, 0]))))
    # Among rows with a predicted chance in each tenth the observed share agrees: 40,000 rows, error below 0.02.
    for low in np.arange(0.0, 1.0, 0.1):
        rows = (ill >= low) & (ill < low + 0.1)
        if rows.sum() > 1_000:
            assert federation.y[rows].mean() == pytest.approx(ill[rows].mean(), abs=0.06)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="There is no folder"):
        synthetic_population(folder=str(tmp_path / "nowhere"))


def test_noise_that_is_exactly_zero_does_no_harm() -> None:
    # A single-precision exponential draw is exactly 0 about once in ten million; the logarithm would then be infinite.
    class Zeros:
        def standard_normal(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            return np.zeros(shape, dtype)

        def standard_exponential(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            return np.zeros(shape, dtype)

    _, y = module._draw(np.array([3]), np.ones((2, 2), np.float32), 0.5, Zeros())  # type: ignore[arg-type]
    assert y.tolist() == [0, 0, 0]
