"""A study of images over real sites trains the model of its simulation, and each site reads its own folder."""

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.support.images.folder import SIDE, write_images
from tests.support.in_process import Consortium, study_of
from wardround.core.errors import Refusal
from wardround.deploy.site.datasets import add, remove
from wardround.deploy.site.policy_file import set_policy
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
    words["algorithm"] = {"name": "fed_ma", "learning_rate": 0.1, "own_start": True}
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
    assert one["dense_0/kernel"].shape == (8 * 8, 2)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-6)


def test_sites_that_see_images_of_different_sizes_are_refused_by_name(consortium):
    for path in (consortium.folder / "pictures" / "bo").rglob("*.png"):
        with Image.open(path) as image:
            larger = image.resize((20, 20))
        larger.save(path)
    asked = study("as_they_are", size=[])
    with pytest.raises(Refusal, match="bo: 20 x 20 x 1, freetown: 16 x 16 x 1"):
        consortium.conduct(asked)
