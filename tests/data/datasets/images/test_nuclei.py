"""Nuclei: the counts of the collection, masks where nuclei are, and images that stay in one part."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.datasets.images.nuclei import SITES, mask, nuclei, parts_of, tile
from wardround.data.folder import data_folder

FILE = data_folder() / "nuclei_dsb2018" / "nuclei.parquet"
needs_file = pytest.mark.skipif(not FILE.is_file(), reason="the folder nuclei_dsb2018 is not in WARDROUND_DATA")


def test_what_is_refused():
    with pytest.raises(Refusal, match="have no middle of 200 pixels"):
        nuclei(size=200, reduce=2)
    with pytest.raises(Refusal, match="There is no site 'fluo'"):
        nuclei(sites=("fluo",))


def test_no_image_is_in_two_parts():
    rows = pd.DataFrame({"image": [f"i{n // 2}" for n in range(24)], "split": ["test"] * 4 + ["train"] * 20})
    part = parts_of(rows)
    # Ten images to learn from: the fifth and the tenth (in order of their names: i10, i11, i2 ... i9) are set aside.
    assert pd.Series(part).groupby(rows["image"]).nunique().max() == 1
    assert sorted(set(rows["image"][part == 1])) == ["i4", "i9"]
    assert (part == 2).sum() == 4


@needs_file
def test_a_site_is_what_the_collection_says():
    made = nuclei(sites=("brightfield", "histology_white_bg"))
    assert made.sites == ("brightfield", "histology_white_bg")
    assert (made.x.shape, made.y.shape) == ((102, 64, 64, 3), (102, 64, 64))
    assert made.x.dtype == made.y.dtype == np.uint8
    # 3 of 16 images of bright field are for testing, in four tiles each; 7 of 38 of tissue on white.
    assert made.counts[:, 2].tolist() == [12, 7]
    assert made.counts.sum(axis=1).tolist() == [64, 38]
    assert set(np.unique(made.y)) == {0, 1}
    assert made.task.kind == "segmentation"
    # Stained nuclei are darker than the tissue around them: image and mask belong together.
    x, y = made.x[64:].mean(axis=3), made.y[64:] > 0
    assert x[y].mean() < x[~y].mean() - 20


@needs_file
def test_reduction_and_crop_by_hand():
    table = pd.read_parquet(FILE, columns=["site", "image_webp", "label_png"])
    row = table.iloc[0]
    whole = mask(row["label_png"], 256, 1)
    small = mask(row["label_png"], 64, 2)
    at = (128 - 64) // 2
    blocks = whole.reshape(128, 2, 128, 2).mean(axis=(1, 3))
    np.testing.assert_array_equal(small, blocks[at : at + 64, at : at + 64] >= 0.5)
    big, little = tile(row["image_webp"], 256, 1).astype(float), tile(row["image_webp"], 64, 2)
    means = big.reshape(128, 2, 128, 2, 3).mean(axis=(1, 3))[at : at + 64, at : at + 64]
    assert np.abs(means - little).max() <= 0.51
    assert len(SITES) == table["site"].nunique() == 6
