"""Clients read when they are drawn: the same rows as when all are read, the same model, and nobody else's bytes."""

import json

import jax
import numpy as np
import pytest

from tests.data.datasets.leaf.test_leaf_files import GOOD, image, write
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.errors import Refusal
from wardround.data.datasets.leaf import drawn_rows
from wardround.data.datasets.leaf.leaf_files import leaf_files
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic


def same(lazy, eager):
    assert list(lazy.sites) == list(eager.sites)
    np.testing.assert_array_equal(lazy.counts, eager.counts)
    np.testing.assert_array_equal(lazy.first, eager.first)
    for mine, other in ((lazy.x, eager.x), (lazy.y, eager.y)):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(mine), other)


def both(path, **settings):
    return [leaf_files(path=str(path), lazy=lazy, **settings) for lazy in (True, False)]


def tweet(text):
    return [1, "date", "NO_QUERY", "someone", text, "training"]


def tweets(folder, files=4, users=25):
    """Files of users with 1 to 7 tweets each; every name and every text is one that confuses a careless reader."""
    for number in range(files):
        data = {
            f'{number}-{n}-"}}{{\\ é': (
                [tweet(f'word{n} "user_data": {{"x": [ ]] \\" {row}') for row in range(1 + n % 7)],
                [n % 2] * (1 + n % 7),
            )
            for n in range(users)
        }
        write(folder / f"{number}.json", data)
    return folder


def test_the_same_rows_as_when_all_are_read(tmp_path):
    same(*both(tweets(tmp_path / "one"), name="sent140", words=32))
    same(*both(tmp_path / "one", name="sent140", words=32, fewest=4, seed=3))
    # A user in two files that are still to be split.
    write(tmp_path / "two" / "a.json", {"u": ([tweet(f"a{i}") for i in range(9)], [0] * 9)})
    write(tmp_path / "two" / "b.json", {"v": ([tweet("c")], [1]), "u": ([tweet("b")] * 5, [1] * 5)})
    same(*both(tmp_path / "two", name="sent140", words=32))
    write(tmp_path / "three" / "train" / "a.json", {"f01": ([image(0), image(51)], [0, 61]), "f02": ([image(7)], [1])})
    write(tmp_path / "three" / "test" / "a.json", {"f01": ([image(102)], [5]), "new": ([image(9)], [1])})
    same(*both(tmp_path / "three", name="femnist"))


def test_keys_and_users_in_any_order(tmp_path):
    path = tmp_path / "a.json"
    data = {user: {"y": [place], "x": [image(place)]} for place, user in enumerate("abc")}
    content = {"hierarchies": None, "user_data": data, "num_samples": [1, 1, 1], "note": "x", "users": ["c", "a", "b"]}
    for indent in (None, 2):
        path.write_text(json.dumps(content, indent=indent))
        lazy, eager = both(path, name="femnist")
        same(lazy, eager)
        assert lazy.y[:].tolist() == [2, 0, 1]


def test_rows_are_taken_as_from_an_array(tmp_path):
    lazy, eager = both(tweets(tmp_path), name="sent140", words=8)
    some = (np.array([[5, 0], [0, 300]]), np.arange(len(eager.y)) % 3 == 0, np.zeros(0, np.int64))
    for index in (0, -1, slice(3, 9), slice(0, 0), *some):
        for mine, other in ((lazy.x, eager.x), (lazy.y, eager.y)):
            np.testing.assert_array_equal(mine[index], other[index])
    place = np.zeros((4, 8), np.int8)
    np.take(lazy.x, np.array([7, 7, 1]), axis=0, out=place[:3], mode="clip")
    np.testing.assert_array_equal(place[:3], eager.x[[7, 7, 1]])
    with pytest.raises(IndexError):
        lazy.x[np.array([len(eager.y)])]


def test_training_gives_the_same_model_and_reads_the_cohort_only(tmp_path, monkeypatch):
    lazy, eager = both(tweets(tmp_path), name="sent140", words=8)
    model = logistic(eager.task)
    algorithm = fed_avg(model, weighted_mean(), batch_size=2)
    asked = []
    read = drawn_rows.stretch
    monkeypatch.setattr(drawn_rows, "stretch", lambda *place: asked.append(place) or read(*place))
    cohort, trained = np.array([4, 17, 60]), []
    for federation in (lazy, eager):
        with Simulation(federation, seed=2, largest_cohort=3, evaluated=cohort) as engine:
            progress = engine.begin(algorithm, model.init(jax.random.key(0)))
            progress, _ = engine.train(algorithm, progress, [(1, cohort), (2, cohort)])
            trained.append((jax.device_get(progress.server), engine.judge(algorithm, progress, "test").loss))
    jax.tree.map(np.testing.assert_array_equal, trained[0], trained[1])
    assert len(set(asked)) == len(asked) <= 3, "each drawn client once, nobody else"


def test_little_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_rows, "REMEMBERED", 100)
    lazy, eager = both(tweets(tmp_path), name="sent140", words=8)
    same(lazy, eager)
    assert sum(x.nbytes + y.nbytes for x, y in lazy.x.store._lately.values()) <= 100


def test_the_index_is_kept_and_made_anew_for_other_files(tmp_path, monkeypatch):
    settings = {"path": str(tweets(tmp_path / "d")), "name": "sent140", "lazy": True, "index": str(tmp_path / "i.npz")}
    first = leaf_files(**settings)
    with monkeypatch.context() as patch:
        patch.setattr("wardround.data.datasets.leaf.user_index.build_index", lambda parts: pytest.fail("read again"))
        again = leaf_files(**settings)
    np.testing.assert_array_equal(again.x[:], first.x[:])
    assert again.y.mark == first.y.mark
    tweets(tmp_path / "d", users=26)
    other = leaf_files(**settings)
    assert len(other.sites) == 104
    assert other.y.mark != first.y.mark
    (tmp_path / "i.npz").write_bytes(b"nonsense")
    assert len(leaf_files(**settings).sites) == 104
    with pytest.raises(Refusal, match="no folder"):
        leaf_files(**{**settings, "index": str(tmp_path / "nowhere" / "i.npz")})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"users": None}, r"no 'users' \(.*bad\.json\)"),
        ({"user_data": []}, r"no 'user_data' \(.*bad\.json\)"),
        ({"user_data": {}}, r"missing in 'user_data' \(.*bad\.json, user u\)"),
        ({"user_data": {"u": {"x": [image(1)]}}}, r"no 'y' \(.*user u\)"),
        ({"user_data": {"u": {"x": [image(1)], "y": [1, 2]}}}, r"'y' has 2 entries, and 'num_samples' says 1"),
        ({"num_samples": [1, 2]}, "'num_samples' has 2 entries for 1 users"),
        ({"num_samples": ["1"]}, "no number of rows"),
        ({"user_data": {"u": {"x": [[1, 2]], "y": [1]}}}, "not 784 numbers.*user u"),
    ],
    ids=["users", "data", "user", "key", "length", "number", "count", "shape"],
)
def test_what_is_broken_is_named(changes, told, tmp_path):
    path = write(tmp_path / "bad.json", GOOD, **changes)
    with pytest.raises(Refusal, match=told):
        leaf_files(path=str(path), name="femnist", lazy=True).x[:]


def test_files_that_are_cut_off_or_spoilt(tmp_path):
    path = write(tmp_path / "bad.json", {"u": GOOD["u"], "v": GOOD["u"]})
    whole = path.read_bytes()
    for broken in (whole[:-5], whole[: len(whole) // 2], b""):
        path.write_bytes(broken)
        with pytest.raises(Refusal, match=r"not whole JSON.*bad\.json"):
            leaf_files(path=str(path), name="femnist", lazy=True)
    # A user whose numbers are spoilt is told when it is drawn, and hurts nobody else.
    spoilt = bytearray(whole)
    spoilt[whole.rindex(b"0.0039")] = ord("?")
    path.write_bytes(spoilt)
    federation = leaf_files(path=str(path), name="femnist", lazy=True)
    assert federation.y[:1].tolist() == [1]
    with pytest.raises(Refusal, match=r"not whole JSON.*bad\.json, user v"):
        federation.y[1:]
    with pytest.raises(Refusal, match="Reddit"):
        leaf_files(path=str(path), name="reddit", lazy=True)
    with pytest.raises(Refusal, match=r"[Nn]o client has 9 rows"):
        leaf_files(path=str(path), name="femnist", lazy=True, fewest=9)
