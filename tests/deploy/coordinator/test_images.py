"""A study of images over real sites trains the model of its simulation, and each site reads its own folder."""

import re

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.support.images.folder import SIDE, square, write_images
from tests.support.in_process import Consortium, study_of
from wardround.core.errors import Refusal
from wardround.deploy.party.decisions import Offer
from wardround.deploy.site.datasets import add, remove, table_for
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.study_summary import describe
from wardround.runs.folder import RunFolder
from wardround.study.file import parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import run

SITES = ("bo", "freetown")
DATA = {
    "source": "images",
    "target": "finding",
    "drop": ["session"],
    "split_by": "subject",
    "size": [8, 8],
    "preparation": {"smallest_cell": 4},
}


def study(name, **data):
    words = study_of(name, rounds=2, model={"name": "mlp", "hidden": [2]}).model_dump(mode="json", exclude_none=True)
    # A layer a round, matched by the server: two rounds are one sweep over this model.
    words["algorithm"] = {"name": "fed_ma", "learning_rate": 0.1, "own_start": True, "growth": 0.5}
    return parse_study({**words, "data": {**DATA, **data}}, where="test")


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path, SITES)
    write_images(tmp_path / "pictures", SITES, subjects=10, frames=4)
    labels = (tmp_path / "pictures" / "labels.csv").read_text().splitlines()
    for name, home in made.homes.items():
        own = [line.removeprefix(f"{name}/") for line in labels if line.startswith(name)]
        (tmp_path / "pictures" / name / "labels.csv").write_text("\n".join([labels[0], *own]))
        remove(home, "demo")
        seen = add(
            home, "faces", "images", {"path": str(tmp_path / "pictures" / name), "layout": "subject/session/frame"}
        )
        assert seen.kinds["image"] == f"image {SIDE}x{SIDE}x1"
        set_policy(home.policy_path, "smallest_cell", "4")
    return made


def test_the_model_is_that_of_the_simulation(consortium):
    asked = study("pictures")
    deployed = consortium.conduct(asked)
    assert deployed["task"]["classes"] == ["no", "yes"]
    words = {**asked.data.model_dump(), "path": str(consortium.folder / "pictures")}
    simulated = asked.model_copy(update={"data": type(asked.data).model_validate(words)})
    folder = RunFolder.create(consortium.folder / "simulated", resume=False)
    run(simulated, folder, [own_method(simulated)], kind="run")
    one, other = (load_file(path / "model.safetensors") for path in (consortium.run(asked), folder.path))
    assert {name: array.shape for name, array in one.items()} == {name: array.shape for name, array in other.items()}
    assert one["dense_0/kernel"].shape == (8 * 8, 3)  # there is room for one more
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-6)
    # Eight images of two patients are more than a cell of four, but not four patients: no figure of them leaves.
    assert all(site["rows"] == 0 for site in deployed["methods"][0]["scores"].get("sites", {}).values())


def test_sites_that_see_images_of_different_sizes_are_refused_by_name(consortium):
    for path in (consortium.folder / "pictures" / "bo").rglob("*.png"):
        with Image.open(path) as image:
            larger = image.resize((20, 20))
        larger.save(path)
    asked = study("as_they_are", size=[])
    with pytest.raises(Refusal, match="bo: 20 x 20 x 1, freetown: 16 x 16 x 1"):
        consortium.conduct(asked)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"split_by": None}, "must set split_by"),
        ({"split_by": "session", "drop": ["subject"]}, "must set split_by"),
        ({"target": "subject"}, "whose each image is"),
        ({"groups": ["subject"]}, "whose each image is"),
    ],
    ids=["patients not said", "another level for patients", "patients to be predicted", "patients as groups"],
)
def test_one_patients_frames_are_not_a_cell(consortium, said, reason):
    """Forty frames of one person are more than a cell of images, and a study could ask for just these."""
    asked = study("frames", **said)
    home = consortium.homes["bo"]
    policy = read_policy(home.policy_path)
    with pytest.raises(Refusal, match=reason):
        table_for(home, "faces", asked, policy)


def test_a_table_that_tells_whose_images_they_are_is_believed_as_folders_are(consortium):
    """All files in one folder: a study that does not say by whom to split would count one person's frames as a cell."""
    folder = consortium.folder / "flat"
    folder.mkdir()
    rows = ["file,Patient ID,finding"]
    for number in range(40):
        Image.fromarray(square(number % 2 == 1, number)).save(folder / f"{number}.png")
        rows.append(f"{number},{1 if number < 30 else number},{'yes' if number % 2 else 'no'}")
    (folder / "labels.csv").write_text("\n".join(rows))
    home = consortium.homes["bo"]
    add(home, "flat", "images", {"path": str(folder), "layout": "frame"})
    policy = read_policy(home.policy_path)
    with pytest.raises(Refusal, match='must set split_by = "Patient ID"'):
        table_for(home, "flat", study("flat", split_by=None, drop=["Patient ID"]), policy)
    assert table_for(home, "flat", study("said", split_by="Patient ID", drop=[]), policy).images_each == 30


@pytest.mark.slow  # quick: tests/queries/test_cards.py
def test_a_label_that_one_patient_has_in_many_frames_is_not_told(consortium):
    """Eight frames of one person at each site carry a name of their own."""
    for name in SITES:
        path = consortium.folder / "pictures" / name / "labels.csv"
        lines = path.read_text().splitlines()
        first = lines[1].split("/")[0]
        path.write_text(
            "\n".join(re.sub(",.*", ",hidden", one) if one.startswith(f"{first}/") else one for one in lines)
        )
    deployed = consortium.conduct(study("rare"))
    assert deployed["task"]["classes"] == ["no", "yes"]


def test_an_approval_tells_what_images_are_read_and_what_leaves(consortium):
    """With matched layers of a network with batch normalization; a broken file is told here, and only here."""
    home = consortium.homes["bo"]
    broken = next((consortium.folder / "pictures" / "bo").rglob("*.png"))
    broken.write_text("not an image")
    words = study("told", size=[16, 16]).model_dump(mode="json", exclude_none=True)
    words["model"] = {"name": "pain_cnn", "filters": [2], "dense": 2}
    words["algorithm"]["growth"] = 0.0
    offer = Offer("told", "", words, "researcher", "2026-01-01T00:00:00")
    shown = describe(home, offer, "faces")
    said = dict(shown.parts)
    read = " ".join(said["What is read"])
    assert "39 images (height x width x channels as the study sees them: image (16x16x1))" in read
    assert "thumbnails, names of files and headers never leave" in read
    assert "told to you alone: Left out, not readable: 1 file" in read
    leaves = " ".join(said["What leaves"])
    # 8 x 8 pixels of 2 filters, pooled to 4 x 4: a dense layer of 32 x 2 weights, 2 biases and 4 x 2 of normalization.
    assert "layer (74 numbers: in every round one whole layer" in leaves
    assert "running mean and variance of norm_0, norm_1" in leaves
    kept = {**words, "algorithm": {"name": "fed_bn"}}
    leaves = " ".join(dict(describe(home, Offer("kept", "", kept, "researcher", "2026-01-01T00:00:00"), "faces").parts)[
        "What leaves"])  # fmt: skip
    assert "running mean" not in leaves
