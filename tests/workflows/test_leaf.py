"""The LEAF runs: figures over clients by hand, statistics, costs that add up, and what is refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tiny_study import call
from wardround.core.quality import Quality
from wardround.workflows.leaf import METHODS, LeafRun, figures, plan_of, run_leaf, statistics, task_of


@pytest.fixture(scope="module")
def tweets(tmp_path_factory):
    """Four users of 5, 5, 10 and 20 tweets in LEAF's format, two of each sentiment's words; each has a hierarchy."""
    generator = np.random.default_rng(0)
    users, data = ["a", "b", "c", "d"], {}
    for user, many in zip(users, (5, 5, 10, 20), strict=True):
        y = [int(one) for one in generator.integers(0, 2, many)]
        x = [[0, "", "", user, f"{'good nice' if one else 'bad sad'} day", ""] for one in y]
        data[user] = {"x": x, "y": y}
    content = {
        "users": users,
        "num_samples": [5, 5, 10, 20],
        "user_data": data,
        "hierarchies": ["north", "north", "south", "south"],
    }
    path = tmp_path_factory.mktemp("leaf") / "tweets.json"
    path.write_text(json.dumps(content))
    return path


def test_figures_by_hand(make_federation):
    federation = replace(make_federation([3, 3, 3]), groups={"hierarchy": np.repeat(["x", "x", "y"], 5)})
    assert len(federation.y) == 15
    quality = Quality(("site-0", "site-1", "site-2"), np.zeros(3), np.array([10, 30, 10]), np.array([10, 15, 0]))
    # By sample 25 / 50; by device (1 + 0.5 + 0) / 3; x has 25 of 40, y none of 10.
    told = figures(quality, federation)
    assert told["by_sample"] == 0.5
    assert told["by_device"] == 0.5
    assert told["percentiles"] == pytest.approx({"10": 0.1, "50": 0.5, "90": 0.9})
    assert told["by_hierarchy"] == {"x": 0.625, "y": 0.0}


def test_statistics_by_hand(make_federation):
    # make_federation adds a third for validation and a third for testing, one row at least: 3 + 1 + 1 and 9 + 3 + 3.
    told = statistics(make_federation([3, 9]))
    assert told == {"devices": 2, "samples": 20, "mean": 10.0, "sd": 5.0, "smallest": 5, "largest": 15}


def test_a_run_on_files_tells_figures_and_costs(tweets):
    asked = LeafRun("sent140", ("minibatch_sgd", "fed_avg"), str(tweets), rounds=2, cohort=4, target=0.0)
    found = run_leaf(asked)
    assert found["statistics"] == {"devices": 4, "samples": 40, "mean": 10.0, "sd": pytest.approx(6.1237, abs=1e-4),
                                   "smallest": 5, "largest": 20}  # fmt: skip
    sgd, avg = (found["methods"][name] for name in ("minibatch_sgd", "fed_avg"))
    # 512 words and two classes: 1,026 numbers down, one more (the weight) up, to and from four users in two rounds.
    assert avg["spent"]["bytes_down"] == 2 * 4 * 4 * 1026
    assert avg["spent"]["bytes_up"] == 2 * 4 * 4 * 1027
    # A gradient takes 4 * 512 * 2 operations a row: 3 + 3 + 6 + 12 training rows, or a batch of 10 of each user.
    assert avg["spent"]["operations"] == 2 * 24 * 4 * 512 * 2
    assert sgd["spent"]["operations"] == 2 * 40 * 4 * 512 * 2
    assert avg["reached"]["round"] == 1
    assert set(avg["by_hierarchy"]) == {"north", "south"}
    assert run_leaf(asked)["methods"] == found["methods"]


def test_a_client_with_few_rows_is_left_out(tweets):
    found = run_leaf(LeafRun("sent140", (), str(tweets), fewest=10))
    assert found["statistics"]["devices"] == 2


def test_alone_and_in_one_place_take_passes_over_all_rows():
    task = task_of(LeafRun("synthetic"))
    assert [plan_of(name, task, 1000, 0)[1] for name in METHODS] == [100, 100, 100, 20, 1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["femnits"], "no LEAF set called 'femnits'.*did you mean 'femnist'"),
        (["femnist"], "none were named"),
        (["synthetic", "--methods", "fedavg"], "no reference method called 'fedavg'.*fed_avg"),
        (["synthetic", "--fewest", "3"], "no smallest number"),
        (["femnist", "--path", "/nowhere"], "no files in LEAF's format"),
        (["synthetic", "--path", "/tmp"], "synthetic is not read from a path"),
        (["synthetic", "--images", "/tmp"], "synthetic has no folder of images"),
        (["synthetic", "--rounds", "0"], "'--rounds'.*greater than or equal to 1"),
        (["synthetic", "--target", "2"], "'--target'.*less than or equal to 1"),
        ([], "Missing argument 'SET'"),
    ],
    ids=["set", "path", "method", "fewest", "folder", "no path", "no images", "rounds", "target", "nothing"],
)
def test_mistakes_are_told_in_one_paragraph(arguments, told, capsys):
    said = call(capsys, "leaf", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert re.search(told, " ".join(said.err.split()))


def test_a_larger_cohort_than_there_are_clients_is_refused(tweets, capsys):
    said = call(capsys, "leaf", "sent140", "--path", tweets, "--methods", "fed_avg", "--cohort", "5")
    assert said.code == 2
    assert "5 clients were asked for each round, and the set sent140 has 4" in " ".join(said.err.split())


def test_the_command_prints_tables(tweets, capsys):
    said = call(capsys, "leaf", "sent140", "--path", tweets, "--methods", "fed_avg", "--rounds", "1", "--cohort", "4")
    assert said.code == 0
    assert "4 devices, 40 samples" in said.out
    assert "FedAvg" in said.out
    assert "by hierarchy: north" in said.out
