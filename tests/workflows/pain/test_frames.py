import numpy as np
import pandas as pd
import pytest
from PIL import Image

from wardround.core.errors import Refusal
from wardround.workflows.pain.frames import UNITS, draw_face, make_faces, pain_intensity, read_frames


def test_pain_intensity_by_hand():
    # AU4 + max(AU6, AU7) + max(AU9, AU10) + AU43: 2 + max(1, 3) + max(0, 4) + 1 = 10; the most is 5 + 5 + 5 + 1 = 16.
    rows = pd.DataFrame([[2, 1, 3, 0, 4, 1], [5, 5, 5, 5, 5, 1], [0, 0, 0, 0, 0, 0]], columns=list(UNITS))
    assert pain_intensity(rows).tolist() == [10, 16, 0]


def write(folder, units):
    """Three people with two sessions of two frames; the third never feels pain."""
    faces, rows = make_faces(subjects=3, sessions=2, frames=2, side=20), []
    place = 0
    for subject in ("a", "b", "c"):
        for session in ("s2", "s10"):
            (folder / subject / session).mkdir(parents=True)
            for frame in range(2):
                Image.fromarray(faces.x[place, ..., 0]).save(folder / subject / session / f"{frame}.png")
                hurts = subject != "c" and frame == 1
                values = dict.fromkeys(UNITS, 0) | {"au7": 2 * hurts} if units else {"pain": 2 * hurts}
                rows.append({"subject": subject, "session": session, "frame": frame, **values})
                place += 1
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)


@pytest.mark.parametrize("units", [True, False])
def test_a_folder_is_read_and_people_without_pain_are_left_out(tmp_path, units):
    write(tmp_path, units)
    frames = read_frames(tmp_path, size=20)
    assert frames.subjects == ["a", "b"]
    # s2 comes before s10, though not in the order of letters.
    assert frames.session.tolist() == [0, 0, 1, 1] * 2
    assert frames.y.tolist() == [0, 1] * 4
    assert (frames.x.shape, frames.x.dtype) == ((8, 20, 20, 1), np.uint8)
    assert any("no frame shows pain: c" in note for note in frames.notes)
    # Equalised: the brightest pixel is white, the darkest black.
    assert (frames.x.min(axis=(1, 2, 3)) == 0).all()
    assert (frames.x.max(axis=(1, 2, 3)) == 255).all()


def test_people_of_several_sites_are_one_person_each(tmp_path):
    write(tmp_path / "north", False)
    write(tmp_path / "south", False)
    (tmp_path / "south" / "a").rename(tmp_path / "south" / "d")
    rows = []
    for site in ("north", "south"):
        own = pd.read_csv(tmp_path / site / "labels.csv").assign(site=site)
        rows.append(own.replace({"subject": {"a": "d"}}) if site == "south" else own)
        (tmp_path / site / "labels.csv").unlink()
    pd.concat(rows).to_csv(tmp_path / "labels.csv", index=False)
    frames = read_frames(tmp_path, size=20)
    assert frames.subjects == ["a", "b", "d"]
    assert any("taken for one person each: b, c." in note for note in frames.notes)
    # b was filmed twice at each site: four sessions, those of the north first; c never felt pain.
    assert frames.session[frames.subject == "b"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert frames.y.sum() == 8


def test_labels_without_pain_are_refused(tmp_path):
    write(tmp_path, False)
    pd.read_csv(tmp_path / "labels.csv").rename(columns={"pain": "mood"}).to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(Refusal, match="neither pain nor the action units"):
        read_frames(tmp_path, size=20)


def test_a_drawn_brow_sinks_with_its_action_unit():
    plain = dict.fromkeys(UNITS, 0.0)
    calm, tense = (
        draw_face(units, np.zeros(4), 60, np.random.default_rng(1)).astype(float)
        for units in (plain, plain | {"au4": 5.0})
    )

    # The brow's middle goes from -0.42 to -0.22 of half the side: 0.2 * 29.5 = 5.9 pixels down.
    def darkest(image):
        return np.argmin(image[8:25, 15:25].mean(axis=1))

    assert darkest(tense) - darkest(calm) == pytest.approx(5.9, abs=2)


def test_in_a_third_of_the_sessions_nothing_hurts():
    faces = make_faces(subjects=6, sessions=4, frames=10, side=12, seed=2)
    hurts = {
        (s, t): faces.y[(faces.subject == s) & (faces.session == t)].any() for s in faces.subjects for t in range(4)
    }
    assert 0 < sum(not one for one in hurts.values()) < 18
