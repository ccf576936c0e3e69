import os
import struct
import zlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.support.images.folder import SIDE, square, write_discs, write_images
from wardround.core.errors import Refusal
from wardround.data.images import store
from wardround.data.load import load
from wardround.data.preparation import Preparation
from wardround.data.schema import Schema
from wardround.data.site_rows import frame_for_schema
from wardround.data.sources.images import images
from wardround.data.table import Table
from wardround.queries.cards import describe
from wardround.queries.columns import kind_of, picture_kind


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path)


def read(folder, **settings):
    return images(path=folder, target="finding", **settings)


def test_pixels_labels_and_places_are_those_of_the_files(folder):
    table = read(folder)
    assert list(table.sites) == ["A", "B"]
    a = table.sites["A"]
    assert list(a.columns) == ["subject", "session", "finding", "image"]
    assert len(a) == 30
    assert (kind_of(a["image"]), picture_kind(a["image"])) == ("image", f"image {SIDE}x{SIDE}x1")
    # Subject 2 of site A, frame 3: 2 + 3 is odd, so the square is on the right; its seed is 10 * 2 + 3.
    row = a[a["subject"] == "02"].iloc[3]
    assert row["finding"] == "yes"
    np.testing.assert_array_equal(row["image"].pixels[..., 0], square(True, 23))


def test_a_federation_holds_bytes_split_by_subject(folder):
    table = read(folder, drop=("session",))
    loaded = load(table, seed=3, by="subject")
    federation = loaded.federation
    assert (federation.x.dtype, federation.x.shape) == (np.uint8, (60, SIDE, SIDE, 1))
    assert federation.task.shape == (SIDE, SIDE, 1)
    # The square tells the label of every row, so rows and labels were not mixed up on the way.
    right = federation.x[:, :, SIDE // 2 :].mean(axis=(1, 2, 3)) > federation.x[:, :, : SIDE // 2].mean(axis=(1, 2, 3))
    assert [federation.task.classes[one] for one in federation.y] == ["yes" if one else "no" for one in right]
    frame = loaded.table.sites["A"]
    train, rest = loaded.order[0][: federation.counts[0, 0]], loaded.order[0][federation.counts[0, 0] :]
    assert not set(frame["subject"].iloc[train]) & set(frame["subject"].iloc[rest])
    assert load(read(folder, drop=("session",)), seed=3, by="subject").fingerprint == loaded.fingerprint


def test_a_subject_at_two_sites_is_told(tmp_path):
    write_images(tmp_path)
    (tmp_path / "B" / "10").rename(tmp_path / "B" / "00")
    labels = pd.read_csv(tmp_path / "labels.csv")
    labels["file"] = labels["file"].str.replace("B/10/", "B/00/")
    labels.to_csv(tmp_path / "labels.csv", index=False)
    loaded = load(read(tmp_path, drop=("session",)), seed=3, by="subject")
    assert any(note.startswith("1 patient (subject) occurs at more than one site") for note in loaded.notes)


def test_broken_files_are_named_left_out_and_counted(folder):
    whole = (folder / "A/00/s1/1.png").read_bytes()
    (folder / "A/00/s1/1.png").write_bytes(whole[: len(whole) // 2])
    (folder / "A/00/s1/2.png").write_text("not an image")
    table = read(folder)
    assert len(table.sites["A"]) == 28
    (note,) = [note for note in table.notes if "not readable" in note]
    assert note.startswith("Left out, not readable: 2 files (A/00/s1/1: ")
    assert "A/00/s1/2: not an image of the kind its name says" in note


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_with_the_name_of_an_image_is_not_waited_for(folder):
    os.mkfifo(folder / "A/00/s1/pipe.png")
    assert len(read(folder).sites["A"]) == 30


def test_nothing_readable_is_refused(tmp_path):
    (tmp_path / "A/1/s").mkdir(parents=True)
    (tmp_path / "A/1/s/1.png").write_text("no")
    with pytest.raises(Refusal, match="None of 1 image could be used"):
        read(tmp_path)


def test_mixed_sizes_are_refused_unless_a_size_is_set(folder):
    Image.fromarray(square(False, 0, side=20)).save(folder / "A/00/s1/0.png")
    with pytest.raises(Refusal, match="are of different sizes") as found:
        load(read(folder, drop=("session",)), seed=1, by="subject")
    assert "A: mixed, B: 16 x 16 x 1" in str(found.value)
    table = read(folder, size=(8, 8), drop=("session",))
    assert picture_kind(table.sites["A"]["image"]) == "image 8x8x1"
    assert "Resized to 8 x 8: 60 images." in table.notes


def test_sites_of_different_sizes_are_refused_by_name(folder):
    for path in (folder / "B").rglob("*.png"):
        Image.fromarray(square(False, 0, side=20)).save(path)
    with pytest.raises(Refusal, match="A: 16 x 16 x 1, B: 20 x 20 x 1"):
        load(read(folder, drop=("session",)), seed=1, by="subject")


def test_sixteen_bits_and_colours_become_the_form(tmp_path):
    (tmp_path / "A").mkdir()
    # 32768 of 65535 is 127.502 of 255, so 128; in a window from 0 to 4095 the value 2048 is 127.53, also 128.
    Image.fromarray(np.full((4, 4), 32768, np.uint16)).save(tmp_path / "A/deep.png")
    colour = np.zeros((4, 4, 3), np.uint8)
    colour[..., 0] = 200
    Image.fromarray(colour).save(tmp_path / "A/red.png")
    table = images(path=tmp_path, target="none", layout="site/frame")
    deep, red = (one.pixels for one in table.sites["A"]["image"])
    # ITU-R 601: 0.299 of red.
    assert (deep.ravel()[0], red.ravel()[0]) == (128, 60)
    assert any(note.startswith("1 image of more than 8 bits became 8 bits") for note in table.notes)
    both = images(path=tmp_path, target="none", layout="site/frame", channels=3).sites["A"]["image"]
    assert [one.pixels.shape for one in both] == [(4, 4, 3)] * 2
    assert both[1].pixels[0, 0].tolist() == [200, 0, 0]
    Image.fromarray(np.full((4, 4), 2048, np.uint16)).save(tmp_path / "A/deep.png")
    table = images(path=tmp_path, target="none", layout="site/frame", window=(0, 4095))
    assert table.sites["A"]["image"][0].pixels.ravel()[0] == 128


def test_labels_by_words_of_the_layout(folder):
    labels = pd.read_csv(folder / "labels.csv")
    labels[["site", "subject", "session", "frame"]] = labels.pop("file").str.split("/", expand=True)
    labels["frame"] = labels["frame"].str.removesuffix(".png")
    labels = labels[labels["site"] == "A"]
    labels.loc[len(labels)] = ["yes", "A", "77", "s1", "0"]
    labels.to_csv(folder / "labels.csv", index=False)
    table = read(folder)
    assert list(table.sites["A"]["finding"]).count("yes") == 15
    assert table.sites["B"]["finding"].isna().all()
    assert any(note.startswith("Without a row in labels.csv: 30 images (B/10/s1/0") for note in table.notes)
    assert "Rows of labels.csv without an image: 1." in table.notes


@pytest.mark.parametrize(
    "change", [("/", "\\"), (",", ";"), (".png", ".PNG")], ids=["Windows", "semicolons", "capitals"]
)
def test_labels_as_spreadsheets_write_them(folder, change):
    path = folder / "labels.csv"
    expected = list(read(folder).sites["A"]["finding"])
    path.write_text(path.read_text().replace(*change))
    assert list(read(folder).sites["A"]["finding"]) == expected


def test_a_table_that_names_none_of_the_images_is_refused_with_an_example(folder):
    path = folder / "labels.csv"
    path.write_text(path.read_text().replace("\n", "\nscans/"))
    with pytest.raises(Refusal, match="it says scans/A/00/s1/0, and an image is A/00/s1/0"):
        read(folder)


def test_masks_must_fit(tmp_path):
    (tmp_path / "A").mkdir()
    (tmp_path / "masks/A").mkdir(parents=True)
    outline = np.zeros((16, 16), np.uint16)
    outline[4:8, 4:8] = 7
    for name, mask in (("a", outline), ("b", outline[:8]), ("c", None)):
        Image.fromarray(square(True, 1)).save(tmp_path / f"A/{name}.png")
        if mask is not None:
            Image.fromarray(mask).save(tmp_path / f"masks/A/{name}.png")
    table = images(path=tmp_path, target="mask", layout="site/frame", masks="masks")
    assert len(table.sites["A"]) == 1
    assert table.sites["A"]["mask"][0].pixels.sum() == 16
    (note,) = [note for note in table.notes if "masks" in note]
    assert "A/b: its mask is 8 x 16, it is 16 x 16" in note
    assert "A/c: there is no mask" in note


def test_transparency_marks_nothing_and_a_mask_that_marks_all_is_named(tmp_path):
    """As drawing programs write: a red square on black, all of it opaque; and one on a ground that cannot be seen."""
    (tmp_path / "A").mkdir()
    (tmp_path / "masks/A").mkdir(parents=True)
    opaque = np.zeros((16, 16, 4), np.uint8)
    opaque[..., 3] = 255
    opaque[4:8, 4:8, 0] = 200
    clear = np.full((16, 16, 4), 255, np.uint8)
    clear[..., 3] = 0
    clear[4:8, 4:8, 3] = 255
    for name, mask in (("a", opaque), ("b", clear), ("c", np.full((16, 16), 9, np.uint8))):
        Image.fromarray(square(True, 1)).save(tmp_path / f"A/{name}.png")
        Image.fromarray(mask).save(tmp_path / f"masks/A/{name}.png")
    table = images(path=tmp_path, target="mask", layout="site/frame", masks="masks")
    assert [int(one.pixels.sum()) for one in table.sites["A"]["mask"]] == [16, 16, 256]
    assert "Every pixel is marked in 1 mask (A/c): look whether 0 is the background there." in table.notes


def test_a_mask_that_would_fill_the_memory_is_not_unpacked(tmp_path):
    """A header that tells of 400 million pixels, and one of a hundred million: left out by their size."""
    (tmp_path / "A").mkdir()
    (tmp_path / "masks/A").mkdir(parents=True)
    for name, side in (("a", SIDE), ("b", 20_000), ("c", 10_000)):
        Image.fromarray(square(True, 1)).save(tmp_path / f"A/{name}.png")
        Image.fromarray(square(True, 1)).save(tmp_path / f"masks/A/{name}.png")
        content = (tmp_path / f"masks/A/{name}.png").read_bytes()
        head = b"IHDR" + struct.pack(">II", side, side) + content[24:29]
        claimed = content[:12] + head + struct.pack(">I", zlib.crc32(head)) + content[33:]
        (tmp_path / f"masks/A/{name}.png").write_bytes(claimed)
    table = images(path=tmp_path, target="mask", layout="site/frame", masks="masks")
    assert len(table.sites["A"]) == 1
    (note,) = [note for note in table.notes if "masks" in note]
    assert "A/b: its mask cannot be read" in note
    assert "A/c: its mask is 10000 x 10000, it is 16 x 16" in note


def test_a_size_that_would_fill_the_disk_is_refused_before_anything_is_read(folder, monkeypatch):
    """The study says the size: 60 images of 4096 x 4096 are a gigabyte."""
    usage = type("Usage", (), {"free": 10**9})()
    monkeypatch.setattr(store, "disk_usage", lambda place: usage)
    monkeypatch.setattr(store, "read_image", lambda *given: pytest.fail("nothing is to be read"))
    with pytest.raises(Refusal, match=r"60 images of 4096 x 4096 pixels take 1\.0 GB, and 0\.5 GB may be used"):
        images(path=folder, target="finding", size=(4096, 4096))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"path": "nowhere"}, "no such folder"),
        ({"layout": "site//frame"}, "not a list of different names"),
        ({"layout": "subject/frame"}, "images lie elsewhere, such as A/00/s1/0.png"),
        ({"labels": "other.csv"}, "There is no table other.csv"),
        ({"masks": "other"}, "There is no folder other"),
        ({"size": (0, 4)}, "not a height and a width"),
        ({"window": (3.0, 1.0)}, "not \\[low, high\\]"),
        ({"channels": 3, "equalize": True}, "grey images only"),
    ],
)
def test_settings_that_cannot_be(folder, settings, words):
    with pytest.raises(Refusal, match=words):
        images(**{"path": folder, "target": "finding", **settings})


def test_two_rows_for_one_image_are_refused(folder):
    labels = pd.read_csv(folder / "labels.csv")
    pd.concat([labels, labels.head(1)]).to_csv(folder / "labels.csv", index=False)
    with pytest.raises(Refusal, match="two rows for A/00/s1/0"):
        read(folder)


def test_images_beside_other_inputs_are_refused_with_the_remedy(folder):
    with pytest.raises(Refusal, match="reads nothing else") as found:
        load(read(folder), seed=1, by="subject")
    assert 'drop = ["session"]' in str(found.value)


def test_a_prepared_model_of_images_takes_nothing_else(folder):
    preparation = load(read(folder, drop=("session",)), seed=1, by="subject").preparation
    assert Preparation.from_json(preparation.to_json()) == preparation
    for frame in (pd.DataFrame({"image": ["A/00/s1/0.png"]}), pd.DataFrame({"age": [3]})):
        with pytest.raises(Refusal, match="sees images of 16 x 16 x 1"):
            preparation.apply(frame)
    small = read(folder, size=(8, 8)).sites["A"]
    with pytest.raises(Refusal, match="sees images of 16 x 16 x 1"):
        preparation.apply(small)
    assert not preparation.apply(pd.DataFrame({"image": [None]})).any()


def read_masks(folder, **settings):
    return images(path=folder, target="mask", layout="site/frame", masks="masks", **settings)


def test_masks_are_what_is_learned(tmp_path):
    table = read_masks(write_discs(tmp_path, images=10))
    loaded = load(table, seed=3)
    federation = loaded.federation
    assert (federation.task.kind, federation.task.shape, federation.task.classes) == ("segmentation", (16, 16, 1), ())
    assert (federation.y.dtype, federation.y.shape) == (np.uint8, (20, 16, 16))
    assert set(np.unique(federation.y)) == {0, 1}
    # A disc is brighter than all around it: every row has the mask of its own image.
    bright = federation.x[..., 0] >= 100
    np.testing.assert_array_equal(bright, federation.y > 0)
    # Folds have other test images, and each image keeps its number.
    again = load(table, seed=3, fold=1)
    assert not set(loaded.order[0][-2:]) & set(again.order[0][-2:])


def test_masks_and_images_are_resized_together(tmp_path):
    federation = load(read_masks(write_discs(tmp_path, images=10), size=(8, 8)), seed=3).federation
    assert federation.y.shape == (20, 8, 8)
    assert set(np.unique(federation.y)) == {0, 1}


def test_masks_that_do_not_fit_leave_their_image_out_by_name(tmp_path):
    write_discs(tmp_path, images=10)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "masks/A/1.png")
    (tmp_path / "masks/A/2.png").write_bytes(b"no image")
    (tmp_path / "masks/B/3.png").unlink()
    table = read_masks(tmp_path)
    (note,) = [note for note in table.notes if "for their masks" in note]
    assert note == (
        "Left out for their masks: 3 images (A/1: its mask is 4 x 4, it is 16 x 16, A/2: its mask cannot be read,"
        " B/3: there is no mask)."
    )
    assert [len(frame) for frame in table.sites.values()] == [8, 9]


def test_segmentation_is_refused_without_masks_or_with_labels(tmp_path):
    write_discs(tmp_path, images=10)
    with pytest.raises(Refusal, match="no folder of masks is named"):
        images(path=tmp_path, target="mask", layout="site/frame")
    with pytest.raises(Refusal, match="The target is a mask, which no classification predicts"):
        load(read_masks(tmp_path, task="classification"), seed=3)
    with pytest.raises(Refusal, match="A mask has no labels to name"):
        load(read_masks(tmp_path, positive="1"), seed=3)
    frame = pd.DataFrame({"age": [1.0, 2.0], "mask": ["a", "b"]})
    with pytest.raises(Refusal, match="A segmentation learns from masks, and the target holds none"):
        load(Table({"A": frame}, "mask", "here", task="segmentation"), seed=3)
    for path in (tmp_path / "B").glob("*.png"):
        Image.fromarray(np.zeros((20, 20), np.uint8)).save(path)
        Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / "masks/B" / path.name)
    with pytest.raises(Refusal, match="The masks are of different sizes") as found:
        load(read_masks(tmp_path), seed=3)
    assert "A: 16 x 16 x 1, B: 20 x 20 x 1" in str(found.value)


def test_a_card_tells_nothing_of_masks_but_their_shape(tmp_path):
    table = read_masks(write_discs(tmp_path, images=10))
    card = describe("A", table.sites["A"], "mask", smallest_cell=4)
    assert (card.kinds["mask"], card.labels, card.distinct, card.rows) == ("image 16x16x1", (), 0, 8)


def test_images_of_a_private_study_keep_their_pixels(tmp_path):
    table = read_masks(write_discs(tmp_path, images=10))
    schema = Schema({"image": "image 16x16x1"}, "segmentation", (), ())
    kept = frame_for_schema(table.sites["A"], table, schema, private=True)
    assert kind_of(kept["image"]) == kind_of(kept["mask"]) == "image"
    # One without a mask counts, as a black image in which there is nothing.
    table.sites["A"].loc[0, "mask"] = None
    rows = frame_for_schema(table.sites["A"], table, schema, private=True)
    assert len(rows) == 10
    assert pd.isna(rows["image"].iloc[0])
