"""What a column of pictures holds: its sizes, never its pixels, and a study of masks can be checked."""

from tests.support import tiny_study as tiny
from tests.support.images.folder import write_discs
from wardround.data.inspection.profile import profile_table
from wardround.data.sources.images import images

STUDY = """
[study]
name = "discs"
rounds = 1
[data]
source = "images"
path = "{path}"
layout = "site/frame"
masks = "masks"
target = "mask"
[model]
name = "u_net"
filters = 2
depth = 1
[algorithm]
name = "fed_avg"
"""


def test_pictures_are_told_by_their_sizes(tmp_path):
    table = images(path=write_discs(tmp_path, images=4), target="mask", layout="site/frame", masks="masks")
    found = {one.name: one for one in profile_table(table)}
    assert (found["image"].kind, found["image"].why, found["image"].role) == ("image", "pixels", "input")
    assert found["mask"].role == "target"
    assert found["mask"].examples == ("16x16x1",)
    assert (found["image"].rows, found["image"].missing, found["image"].levels) == (8, 0, 1)


def test_a_study_of_masks_is_checked(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY.format(path=write_discs(tmp_path / "scans", images=6)))
    said = tiny.call(capsys, "check", tmp_path / "study.toml")
    assert said.code == 0
    assert "The study is valid." in said.out
