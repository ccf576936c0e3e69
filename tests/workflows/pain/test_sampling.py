import numpy as np

from wardround.workflows.pain.frames import PainFrames
from wardround.workflows.pain.sampling import balance_down, held_out, session_balance, session_parts, shard_parts

RNG = np.random.default_rng


def frames():
    """a: sessions 0 to 3, pain in 1 only; b: sessions 0 and 1, pain in both. Ten frames each, a tenth painful."""
    rows = [("a", t) for t in range(4)] + [("b", t) for t in range(2)]
    subject, session = (np.repeat([row[k] for row in rows], 10) for k in (0, 1))
    hurts = (np.arange(60) % 10 == 0) & ((session == 1) | (subject == "b"))
    return PainFrames(np.zeros((60, 2, 2, 1), np.uint8), hurts.astype(int), subject, session)


def test_balancing_down_keeps_all_of_the_rarer_class_once():
    y = np.array([0] * 8 + [1] * 3)
    kept = balance_down(np.arange(11), y, RNG(1))
    assert sorted(kept[y[kept] == 1]) == [8, 9, 10]
    assert len(set(kept)) == len(kept) == 6


def test_session_balancing_draws_each_class_from_itself():
    y = np.array([0] * 5 + [1])
    kept = session_balance(np.arange(6), y, 20, RNG(1))
    assert (np.sum(y[kept] == 1), np.sum(y[kept] == 0)) == (20, 20)
    assert set(kept[y[kept] == 1]) == {5}
    assert len(session_balance(np.arange(5), y, 20, RNG(1))) == 0


def test_sessions_come_in_order():
    data = frames()
    before, after = (session_parts(data, session, 4, RNG(1)) for session in (0, 1))
    # Person a felt nothing in session 0, so there is nothing to learn from; in session 1 there is.
    assert [len(part) for part in before["a"]] == [0, 10, 10]
    assert [len(part) for part in after["a"]] == [8, 10, 10]
    train, validation, test = after["a"]
    assert set(data.session[train]) <= {0, 1}
    assert (set(data.session[validation]), set(data.session[test])) == ({2}, {3})
    assert [len(part) for part in after["b"]] == [8, 0, 0]


def test_the_buffer_validates_on_the_last_session_that_a_person_had():
    data = frames()
    parts = session_parts(data, 1, 4, RNG(1), buffer=True)
    # b came in sessions 0 and 1 only: session 1 stays for validation, and only session 0 trains.
    assert set(data.session[parts["b"][0]]) == {0}
    assert set(data.session[parts["b"][1]]) == {1}
    assert set(data.session[parts["a"][1]]) == {2}


def test_shards_are_cumulative_and_tests_balanced_or_not():
    data = frames()
    for balanced in (True, False):
        small, large = (shard_parts(data, share, RNG(3), balanced=balanced) for share in (0.3, 0.6))
        for subject in ("a", "b"):
            assert set(small[subject][0]) <= set(large[subject][0])
            assert set(small[subject][2]) == set(large[subject][2])
            assert not set(large[subject][0]) & set(large[subject][2])
        tested = np.concatenate([part[2] for part in large.values()])
        # 3 of 60 frames are painful: 6 balanced rows, of which 0.4 are tested; else 24 of 60.
        assert len(tested) == (2 if balanced else 24)


def test_pretraining_holds_a_fifth_of_balanced_rows_out():
    data = frames()
    parts = held_out(data, RNG(1))
    train, validation = (np.concatenate([part[k] for part in parts.values()]) for k in (0, 1))
    assert (len(train), len(validation)) == (5, 1)
    assert data.y[np.concatenate([train, validation])].sum() == 3
