"""From the words of a study to data, models and methods: the same words give the same things."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import PARTS, Federation
from wardround.data.partitions.by_label_classes import by_label_classes
from wardround.data.partitions.iid import iid
from wardround.data.partitions.shift_features import shift_features
from wardround.data.table import Partition
from wardround.study import assemble
from wardround.study.file import Study, parse_study, read_study
from wardround.study.methods import compared_methods, own_method
from wardround.study.transform_chain import transform_of

LEAST: dict[str, Any] = {"study": {"name": "t", "rounds": 5}, "data": {"source": "triage"}}


def study_of(**tables: dict[str, Any]) -> Study:
    return parse_study({**LEAST, **tables}, where="t.toml")


@pytest.fixture
def pictures() -> Federation:
    """60 pictures of 2 x 2 bytes at three sites; the first byte numbers the picture, the label is its last digit."""
    number = np.arange(60)
    x = np.zeros((60, 2, 2), np.uint8)
    x[:, 0, 0] = number
    return Federation(
        sites=("a", "b", "c"),
        x=x,
        y=(number % 10).astype(np.int32),
        first=np.array([0, 10, 40]),
        counts=np.array([[6, 2, 2], [18, 6, 6], [12, 4, 4]]),
        task=Task((2, 2), tuple("0123456789"), "digit"),
        groups={"sex": number % 2},
    )


def numbers_of(federation: Federation) -> list[int]:
    return [int(value) for value in federation.x[:, 0, 0]]


def test_pictures_are_dealt_out_anew_and_every_row_is_kept(pictures: Federation) -> None:
    """60 rows dealt to four sites are 15 each; 0.6, 0.2, 0.2 of them are 9, 3, 3."""
    dealt = assemble.deal_rows(pictures, iid(sites=4), 3, (0.6, 0.2, 0.2))
    assert list(dealt.sites) == ["site-1", "site-2", "site-3", "site-4"]
    assert dealt.counts.tolist() == [[9, 3, 3]] * 4
    assert dealt.first.tolist() == [0, 15, 30, 45]
    assert sorted(numbers_of(dealt)) == list(range(60))
    assert numbers_of(dealt) != list(range(60))
    # Label and group went with the picture.
    assert dealt.y.tolist() == [number % 10 for number in numbers_of(dealt)]
    assert dealt.groups["sex"].tolist() == [number % 2 for number in numbers_of(dealt)]
    assert dealt.x.dtype == np.uint8
    assert sorted(np.concatenate([dealt.rows_of(part) for part in PARTS])) == list(range(60))


def test_dealing_depends_on_the_seed_alone(pictures: Federation) -> None:
    first, again, other = (
        numbers_of(assemble.deal_rows(pictures, iid(sites=4), seed, (0.6, 0.2, 0.2))) for seed in (3, 3, 4)
    )
    assert first == again != other


def test_a_label_partition_sees_the_labels(pictures: Federation) -> None:
    dealt = assemble.deal_rows(pictures, by_label_classes(sites=5, classes=2), 3, (0.5, 0.25, 0.25))
    assert sorted(numbers_of(dealt)) == list(range(60))
    for index in range(5):
        own = dealt.y[dealt.first[index] : dealt.first[index] + dealt.counts[index].sum()]
        assert len(set(own.tolist())) == 2


def test_a_partition_that_changes_columns_is_refused_for_pictures(pictures: Federation) -> None:
    with pytest.raises(Refusal, match="images"):
        assemble.deal_rows(pictures, shift_features(sites=2), 3, (0.6, 0.2, 0.2))


@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.0), (0.9, 0.2, 0.2), (0.0, 0.5, 0.5)])
def test_shares_are_checked_for_pictures_too(pictures: Federation, shares: tuple[float, ...]) -> None:
    with pytest.raises(Refusal, match="shares"):
        assemble.deal_rows(pictures, iid(sites=2), 3, shares)


def test_a_row_in_no_site_is_left_out(pictures: Federation) -> None:
    first_half = Partition(lambda features, target, generator: [np.arange(10), np.arange(10, 30)])
    dealt = assemble.deal_rows(pictures, first_half, 3, (0.6, 0.2, 0.2))
    assert dealt.counts.sum(axis=1).tolist() == [10, 20]
    assert len(dealt.x) == len(dealt.y) == 30
    # Rows of the pool come part by part: the 36 training rows first (sites a, b, c), of which these are the first 30.
    assert sorted(numbers_of(dealt)) == [*range(6), *range(10, 28), *range(40, 46)]


def test_array_data_sets_pass_through_with_and_without_a_partition() -> None:
    data = {"source": "synthetic_population", "clients": 12, "rows": 10, "features": 3}
    plain = assemble.load_setting(study_of(data=data), 1)
    assert len(plain.federation.sites) == 12
    dealt = assemble.load_setting(study_of(data={**data, "partition": {"name": "iid", "sites": 5}}), 1)
    assert dealt.federation.counts.sum(axis=1).tolist() == [24] * 5
    rows = [np.sort(one.federation.x.view([("", one.federation.x.dtype)] * 3), axis=0) for one in (plain, dealt)]
    assert np.array_equal(rows[0], rows[1])
    assert plain.fingerprint != dealt.fingerprint
    assert assemble.load_setting(study_of(data=data), 1).fingerprint == plain.fingerprint


def test_fingerprints_tell_other_data(pictures: Federation) -> None:
    data = study_of().data
    first = assemble.array_setting(pictures, None, 0, data).fingerprint
    other = replace(pictures, x=pictures.x + np.uint8(1))
    assert assemble.array_setting(other, None, 0, data).fingerprint != first
    relabelled = replace(pictures, y=np.roll(pictures.y, 1))
    assert assemble.array_setting(relabelled, None, 0, data).fingerprint != first
    assert assemble.array_setting(replace(pictures), None, 0, data).fingerprint == first


def test_csv_data_are_split_by_seed_with_the_rest_unchanged(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path, data={"positive": "0"}))
    first, again, other = (assemble.load_setting(study, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.federation.x, again.federation.x)
    assert not np.array_equal(first.federation.x, other.federation.x)
    assert first.fingerprint == other.fingerprint
    assert tuple(first.federation.sites) == tiny.HOSPITALS
    assert first.federation.counts.tolist() == [[18, 6, 6]] * 4
    assert first.federation.task.classes[first.positive] == "0"
    assert [site.name for site in first.tables] == list(tiny.HOSPITALS)


def test_the_same_words_give_the_same_object_so_that_programs_are_shared() -> None:
    task = Task((3,), ("no", "yes"))
    words: dict[str, Any] = {
        "algorithm": {"name": "fed_avg", "learning_rate": 0.2},
        "model": {"name": "mlp", "hidden": [4]},
    }
    one, two = study_of(**words), study_of(**words, study={"name": "other", "rounds": 9})
    assert assemble.build(one, own_method(one), task) is assemble.build(two, own_method(two), task)
    assert assemble.model_of(one, task) is assemble.model_of(two, task)
    other = study_of(**{**words, "algorithm": {"name": "fed_avg", "learning_rate": 0.3}})
    assert assemble.build(other, own_method(other), task) is not assemble.build(one, own_method(one), task)


def test_compared_methods_inherit_the_settings_they_know() -> None:
    study = study_of(
        algorithm={"name": "fed_avg", "learning_rate": 0.2, "momentum": 0.5},
        compare={
            "methods": ["local", "global", "fed_prox"],
            "settings": {"fed_prox": {"mu": 2.0, "learning_rate": 0.7}},
        },
    )
    local, common, prox = compared_methods(study)
    assert (common.name, common.algorithm) == ("global", "fed_avg")
    assert dict(common.settings) == {"learning_rate": 0.2, "momentum": 0.5}
    assert dict(local.settings)["learning_rate"] == 0.2
    assert dict(prox.settings)["learning_rate"] == 0.7
    assert dict(prox.settings)["mu"] == 2.0


def test_freezing_makes_lists_hashable_and_sorts_keys() -> None:
    frozen = assemble.freeze({"b": [1, [2, 3]], "a": "x"})
    assert frozen == (("a", "x"), ("b", (1, (2, 3))))
    hash(frozen)


@pytest.mark.parametrize(
    ("said", "largest", "first"),
    [
        ({}, 4, [0, 1, 2, 3]),
        ({"fraction": 0.5}, 2, None),
        ({"cohort": 3}, 3, None),
        ({"present": {"b": "2-"}}, 4, [0, 2, 3]),
    ],
)
def test_participation(said: dict[str, Any], largest: int, first: list[int] | None) -> None:
    chosen = assemble.participation_of(study_of(participation=said), ["a", "b", "c", "d"], 7)
    assert chosen.largest == largest
    cohort = chosen.cohort(1).tolist()
    assert cohort == first if first is not None else len(set(cohort)) == largest


def test_transforms_in_a_chain_are_found_once() -> None:
    study = parse_study({**LEAST, "transforms": [{"name": "clip", "norm": 2.0}]}, where="")
    assert transform_of(study) is transform_of(study)
    none = transform_of(parse_study(LEAST, where=""))
    assert not none.sum_only


@pytest.mark.parametrize("name", ["from_torch", "from_flax"])
def test_a_model_made_of_a_python_object_cannot_be_named(name: str) -> None:
    with pytest.raises(Refusal, match="Python object"):
        assemble.model_of(study_of(model={"name": name}), Task((3,), ("no", "yes")))


def roles(**tables):
    content = {
        "study": {"name": "roles", "user": "freetown"},
        "data": {"source": "triage", "hospitals": 3, "shares": [1.0, 0.0, 0.0], "user_shares": [0.5, 0.0, 0.5]},
    }
    return parse_study({**content, **tables}, where="here")


def test_the_asking_site_is_split_in_half_and_all_others_train() -> None:
    study = roles()
    sites = assemble.load_setting(roles(data={"source": "triage", "hospitals": 3}), 0).federation.sites
    study = roles(study={"name": "roles", "user": sites[1]})
    first, second = (assemble.load_repeat(study, repeat) for repeat in (0, 1))
    total = first.federation.counts.sum(axis=1)
    for setting in (first, second):
        counts = setting.federation.counts
        assert counts[[0, 2], 0].tolist() == total[[0, 2]].tolist()
        assert abs(int(counts[1, 0]) - int(counts[1, 2])) <= 1
        assert counts[:, 1].sum() == 0
    # The second repeat tests the other half.
    halves = [set(s.order[1][s.federation.counts[1, 0] :].tolist()) for s in (first, second)]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(range(int(total[1])))


def test_shares_of_a_site_that_does_not_ask_are_refused() -> None:
    with pytest.raises(Refusal, match="does not say which site asks"):
        assemble.load_setting(roles(study={"name": "roles"}), 0)
    each = {"methods": ["local", "weight_erosion"], "users": "each"}
    with pytest.raises(Refusal, match="one case for each asking site"):
        assemble.load_setting(roles(compare=each), 0)
    with pytest.raises(Refusal, match="cannot be the shares"):
        assemble.load_setting(roles(data={"source": "triage", "hospitals": 3, "user_shares": [0.0, 0.5, 0.5]}), 0)
