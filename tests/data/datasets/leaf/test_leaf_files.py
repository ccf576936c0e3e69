"""Files in LEAF's format, made here: what becomes of them, and what is refused by file, user and key."""

import json

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.data.datasets.leaf import clients
from wardround.data.datasets.leaf.leaf_files import LETTERS, leaf_files, word_set


def write(path, data, hierarchies=None, **changes):
    """A file of these users, each with (x, y)."""
    content = {
        "users": list(data),
        "num_samples": [len(y) for _, y in data.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in data.items()},
        **({} if hierarchies is None else {"hierarchies": hierarchies}),
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def image(value):
    return [value / 255] * 784


def test_femnist_in_train_and_test(tmp_path):
    write(tmp_path / "train" / "a.json", {"f01": ([image(0), image(51)], [0, 61]), "f02": ([image(255)], [10])})
    write(tmp_path / "train" / "b.json", {"f03": ([image(7)], [3])})
    write(tmp_path / "test" / "a.json", {"f01": ([image(102)], [5]), "new": ([image(9)], [1])})
    data = leaf_files(path=str(tmp_path), name="femnist")
    assert data.sites == ("f01", "f02", "f03", "new")
    assert data.counts.tolist() == [[2, 0, 1], [1, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert data.x.dtype == np.uint8
    # Client after client, training rows before test rows, though these stand in other files.
    assert data.x[:, 0, 0, 0].tolist() == [0, 51, 102, 255, 7, 9]
    assert data.y.tolist() == [0, 61, 5, 10, 3, 1]
    assert [data.task.classes[y] for y in (0, 61, 10)] == ["0", "z", "A"]
    several = leaf_files(path=str(tmp_path), name="femnist", fewest=2)
    assert several.sites == ("f01",)


def test_rows_without_parts_are_split_within_each_user(tmp_path):
    users = {f"u{n}": ([image(n)] * 10, [n] * 10) for n in range(3)}
    data = leaf_files(path=str(write(tmp_path / "all.json", users)), name="femnist")
    assert data.counts.tolist() == [[6, 2, 2]] * 3
    np.testing.assert_array_equal(data.y, np.repeat([0, 1, 2], 10))


def test_shakespeare_with_plays(tmp_path):
    line = "To be, or not to be: that is the question".ljust(79) + "é"
    path = write(tmp_path / "roles.json", {"HAMLET": ([line], ["T"]), "PUCK": ([line], ["!"])}, ["Hamlet", "Dream"])
    data = leaf_files(path=str(path), name="shakespeare")
    assert data.task.outputs == len(LETTERS) == 80
    assert "".join(LETTERS[code] for code in data.x[0]) == line[:-1] + " "  # an unknown character counts as a blank
    assert [data.task.classes[y] for y in data.y] == ["T", "!"]
    assert data.groups["hierarchy"].tolist() == ["Hamlet", "Dream"]


def test_sent140_is_the_set_of_its_words(tmp_path):
    tweet = [1, "date", "NO_QUERY", "someone", "Good, good DAY!", "training"]
    data = leaf_files(path=str(write(tmp_path / "s.json", {"u": ([tweet], [1])})), name="sent140", words=64)
    np.testing.assert_array_equal(data.x[0], word_set("day good", 64))
    assert data.x.sum() == 2


def test_celeba_reads_the_pictures_it_names(tmp_path):
    picture = pytest.importorskip("PIL.Image")
    (tmp_path / "img").mkdir()
    picture.fromarray(np.full((218, 178, 3), 200, np.uint8)).save(tmp_path / "img" / "000001.png")
    path = write(tmp_path / "c.json", {"7": (["000001.png"], [1])})
    data = leaf_files(path=str(path), name="celeba", images=str(tmp_path / "img"))
    assert data.x.shape == (1, 84, 84, 3)
    assert (data.x == 200).all()
    with pytest.raises(Refusal, match=r"000002\.png.*user 7"):
        leaf_files(
            path=str(write(tmp_path / "d.json", {"7": (["000002.png"], [1])})),
            name="celeba",
            images=str(tmp_path / "img"),
        )
    with pytest.raises(Refusal, match="no such folder"):
        leaf_files(path=str(path), name="celeba")


def test_reddit_knows_the_frequent_words_of_its_training_files(tmp_path):
    words = ["the"] * 6 + ["cat"] * 3 + ["sat"]
    following = [*words[1:], "mat"]
    end = [*words[1:], "<PAD>"]
    comment = [words, words]
    y = [{"target_tokens": [following, end], "count_tokens": 20}]
    path = write(tmp_path / "r.json", {"u": ([comment], y)})
    data = leaf_files(path=str(path), name="reddit", vocabulary=4)
    assert data.task.classes == ("<PAD>", "<UNK>", "the", "cat")
    assert data.x.tolist() == [[2] * 6 + [3] * 3 + [1]]  # the row that is followed by padding is left out
    assert data.y.tolist() == [1]


def test_many_rows_lie_in_a_mapped_file(tmp_path, monkeypatch):
    users = {f"u{n}": ([image(n)] * 3, [n] * 3) for n in range(5)}
    for number in range(3):
        write(tmp_path / f"{number}.json", {f"{number}-{user}": own for user, own in users.items()})
    inside = leaf_files(path=str(tmp_path), name="femnist")
    monkeypatch.setattr(clients, "IN_MEMORY", 1)
    monkeypatch.setattr(clients, "AT_ONCE", 4)
    mapped = leaf_files(path=str(tmp_path), name="femnist")
    assert isinstance(mapped.x, np.memmap)
    np.testing.assert_array_equal(mapped.x, inside.x)
    assert mapped.sites == inside.sites
    assert len(mapped.sites) == 15


GOOD = {"u": ([image(1)], [1])}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"users": None}, r"no 'users' \(.*bad\.json\)"),
        ({"user_data": {}}, r"missing in 'user_data' \(.*bad\.json, user u\)"),
        ({"user_data": {"u": {"x": [image(1)]}}}, r"no 'y' \(.*user u\)"),
        ({"user_data": {"u": {"x": [image(1)], "y": [1, 2]}}}, r"'y' has 2 entries, and 'num_samples' says 1"),
        ({"num_samples": [1, 2]}, "'num_samples' has 2 entries for 1 users"),
        ({"user_data": {"u": {"x": [[1, 2]], "y": [1]}}}, "not 784 numbers.*user u"),
        ({"user_data": {"u": {"x": [image(510)], "y": [1]}}}, "outside of 0 to 1"),
        ({"user_data": {"u": {"x": [image(1)], "y": [62]}}}, "62 where a class from 0 to 61"),
    ],
    ids=["users", "user", "key", "length", "number", "shape", "range", "class"],
)
def test_what_is_broken_is_named(changes, told, tmp_path):
    path = write(tmp_path / "bad.json", GOOD, **changes)
    with pytest.raises(Refusal, match=told):
        leaf_files(path=str(path), name="femnist")


def test_broken_json_and_empty_folders_are_named(tmp_path):
    path = write(tmp_path / "bad.json", GOOD)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Refusal, match=r"not whole JSON.*bad\.json"):
        leaf_files(path=str(path), name="femnist")
    (tmp_path / "empty").mkdir()
    for missing in ("empty", "nowhere"):
        with pytest.raises(Refusal, match="no files in LEAF's format"):
            leaf_files(path=str(tmp_path / missing), name="femnist")
    good = write(tmp_path / "good.json", GOOD)
    with pytest.raises(Refusal, match=r"[Nn]o client has 9 rows"):
        leaf_files(path=str(good), name="femnist", fewest=9)
