"""CIFAR-10: sheets that the test makes, read pixel by pixel; bad files named; the real ones, where they are."""

import json

import numpy as np
import pytest
from PIL import Image

from wardround.core.errors import Refusal
from wardround.data.datasets.images.cifar10 import CLASSES, cifar10
from wardround.data.folder import data_folder

IS_THERE = (data_folder() / "cifar10").is_dir()


@pytest.fixture
def sheets(tmp_path, monkeypatch):
    """20 pictures to train, four a sheet, and 20 to test; picture i is all (i, 2 i, x + 32 y mod 251)."""
    folder = tmp_path / "cifar10"
    folder.mkdir()
    place = np.arange(32 * 32) % 251

    def sheet(name, numbers):
        lines = np.array([np.stack([np.full(1024, i), np.full(1024, 2 * i), place], axis=1) for i in numbers], np.uint8)
        Image.fromarray(lines).save(folder / name)

    for batch in range(5):
        sheet(f"data_batch_{batch + 1}.png", range(4 * batch, 4 * batch + 4))
    sheet("test_batch.png", range(100, 120))
    (folder / "train_lables.json").write_text(json.dumps([i % 10 for i in range(20)]))
    (folder / "test_lables.json").write_text(json.dumps([i % 10 for i in range(20)]))
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    return folder


def test_every_picture_is_there_once_with_its_class(sheets):
    federation = cifar10(clients=2)
    assert federation.counts.tolist() == [[10, 0, 10], [10, 0, 10]]
    numbers = federation.x[:, 0, 0, 0]
    assert sorted(numbers.tolist()) == [*range(20), *range(100, 120)]
    np.testing.assert_array_equal(federation.y, numbers % 10)
    for part, low, high in (("train", 0, 20), ("test", 100, 120)):
        own = numbers[federation.rows_of(part)]
        assert ((low <= own) & (own < high)).all()
    # A line of the sheet is the picture row after row: place 32 y + x.
    assert federation.x.shape == (40, 32, 32, 3)
    assert federation.x[0, 3, 5].tolist() == [numbers[0], 2 * numbers[0], 3 * 32 + 5]


def test_skew(sheets):
    assert cifar10(clients=2, alpha=0.1).counts[:, 0].sum() == 20
    with pytest.raises(Refusal, match="clients"):
        cifar10(clients=50)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("train_lables.json", b"[1, 2", "train_lables.json.*not whole JSON|not whole JSON.*train_lables.json"),
        ("test_lables.json", b"[0, 11]", "classes from 0 to 9"),
        ("test_lables.json", b"[0, 1]", "2 classes for 20 pictures"),
        ("data_batch_3.png", b"no picture", "cannot be read"),
    ],
)
def test_a_bad_file_is_named(sheets, file, content, told):
    (sheets / file).write_bytes(content)
    with pytest.raises(Refusal, match=told) as refusal:
        cifar10(clients=2)
    assert file in str(refusal.value)


def test_a_sheet_of_another_width(sheets):
    Image.fromarray(np.zeros((4, 100, 3), np.uint8)).save(sheets / "data_batch_1.png")
    with pytest.raises(Refusal, match="1024 pixels wide"):
        cifar10(clients=2)


@pytest.mark.slow
@pytest.mark.skipif(not IS_THERE, reason="the folder cifar10 is not in WARDROUND_DATA")
def test_the_real_set():
    federation = cifar10()
    assert federation.counts.tolist() == [[500, 0, 100]] * 100
    for part, each in (("train", 5_000), ("test", 1_000)):
        assert np.bincount(federation.y[federation.rows_of(part)]).tolist() == [each] * len(CLASSES)
    # The means of the channels, as everybody who normalizes CIFAR-10 writes them down.
    means = federation.x[federation.rows_of("train")].mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=5e-5)
