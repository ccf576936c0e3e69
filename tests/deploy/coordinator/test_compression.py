"""Compressed rounds over sites' real homes: the bytes of the simulation, and what is kept, refused and told."""

import json
import shutil
import struct

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.in_process import NAMES, Consortium, die_at, study_of
from tests.support.results import plain
from wardround.cli.consortium.status import site_words
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.queue import enqueue, read_submission
from wardround.deploy.coordinator.status import coordinator_status
from wardround.deploy.coordinator.studies.amendment import without_sites
from wardround.deploy.coordinator.studies.lines import keep_lines, known_lines
from wardround.deploy.demo import make_coordinator
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.runs.folder import RunFolder
from wardround.study.methods import own_method
from wardround.study.transform_chain import links_of
from wardround.workflows.run import run

SCHEMES = {
    "compression": [{"name": "compression", "smallest": 8}],
    "quantize": [{"name": "quantize", "bits": 2, "smallest": 8}],
    "top_k": [{"name": "top_k", "fraction": 0.3, "smallest": 8}, {"name": "quantize", "bits": 8, "smallest": 5}],
}
SLOW = ("compression", "top_k")


@pytest.fixture
def consortium(tmp_path):
    return Consortium(tmp_path)


def study_with(name: str, rounds: int = 2):
    return study_of(name, rounds, transforms=SCHEMES[name])


def simulated(consortium, study):
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    pd.concat(frames).to_csv(consortium.folder / "patients.csv", index=False)
    data = study.data.model_copy(update={"path": str(consortium.folder / "patients.csv")})
    study = study.model_copy(update={"data": data})
    folder = RunFolder.create(consortium.folder / "simulated", resume=False)
    return plain(run(study, folder, [own_method(study)], kind="run"))


def body_bytes(content: bytes) -> int:
    """What is left of a message when its header and the list of its arrays are taken away: the numbers themselves."""
    (header,) = struct.unpack("<I", content[4:8])
    (index,) = struct.unpack("<Q", content[8 + header : 16 + header])
    return len(content) - 16 - header - index


@pytest.mark.parametrize("name", ["quantize", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_the_meter_the_simulation_and_the_wire_count_the_same_bytes(consortium, name):
    study, seen = study_with(name), []

    def watch(site, topic, header, reply):
        seen.append((topic, body_bytes(reply))) if topic == "round" else None
        return reply

    consortium.change = watch
    consortium.conduct(study)
    theirs = simulated(consortium, study)["methods"][0]["meters"]["traffic"]
    for word in ("bytes_down", "bytes_up"):
        assert sum(record["measures"]["arrays"][word] for record in consortium.rounds(study)) == theirs[word]
    assert {size for _, size in seen} == {theirs["bytes_up_a_site_a_round"]}
    # The meters of both count the arrays of training alike; what real sites' meter counts besides is told as such.
    ours = json.loads((consortium.run(study) / "result.json").read_bytes())["methods"][0]["meters"]["traffic"]
    assert (ours["arrays_down"], ours["arrays_up"]) == (theirs["bytes_down"], theirs["bytes_up"])
    assert ours["bytes_down"] > ours["arrays_down"]
    assert "The arrays of training were" in ours["words"]
    assert "arrays_down" not in theirs
    assert len(seen) == 2 * len(NAMES)
    # The simulation's own model: the same draws, so the same up to the order of sums.
    runs = (consortium.run(study), consortium.folder / "simulated")
    mine, its = (load_file(one / "model.safetensors") for one in runs)
    assert all(np.abs(mine[array] - its[array]).max() <= 1e-4 for array in its)
    # Whoever replays the transcript finds the same bits, those of the packed model too.
    assert replay(read_source(consortium.run(study))).problem == ""
    # A round's own bytes are those of the audit log: all that stands around the numbers, too.
    for record in consortium.rounds(study):
        assert record["bytes_up"] > record["measures"]["arrays"]["bytes_up"]


@pytest.mark.slow
def test_what_a_site_did_not_send_survives_its_crash(tmp_path, monkeypatch):
    models = []
    for crash in (False, True):
        world = Consortium(tmp_path / str(crash))
        with monkeypatch.context() as patch:
            if crash:
                die_at(patch, "site.kept.saved", count=4)  # in the second round, before the answer left
            world.until_done(study_with("top_k", rounds=3))
        models.append(world.model(study_with("top_k", rounds=3)))
        # At the end nothing of it lies at a site any more.
        folders = [world.homes[site].folder(world.id(study_with("top_k", rounds=3))) / "kept" for site in NAMES]
        assert all(list(folder.glob("*.first")) and not list(folder.glob("*.safetensors")) for folder in folders)
        assert len(world.deaths) == crash
    assert models[0] == models[1]


def test_a_code_of_another_length_or_of_huge_numbers_is_no_answer(consortium):
    changes = iter(["short", "huge", "nan"])

    def spoil(site, topic, header, reply):
        if topic != "round" or site != "bo":
            return reply
        words, message = decode(reply)
        kind = next(changes)

        def touch(path, leaf):
            name = str(path[-1].key)
            if kind == "short":
                return leaf[:-1] if name == "quantize/codes" else leaf
            value = 9e19 if kind == "huge" else np.nan
            return np.full_like(leaf, value) if name == "quantize/step" else leaf

        arrays = jax.tree_util.tree_map_with_path(touch, message.arrays)
        words = {key: value for key, value in words.items() if key not in ("arrays", "meta")}
        return encode(words, Message(arrays, message.meta))

    consortium.change = spoil
    study = study_of("spoilt", 3, transforms=SCHEMES["quantize"], deploy={"quorum": 2})
    consortium.conduct(study)
    told = [record["measures"]["absent"]["bo"] for record in consortium.rounds(study)]
    assert "an array of shape" in told[0]
    assert "numbers as large as" in told[1]
    assert "not finite" in told[2]


def test_a_secure_sum_of_few_bits_gives_the_simulations_model(consortium):
    """Twelve bits a number: three sites that count 1 each, answers of up to 4 in steps of 1/128: 3 x 4 x 128 < 2^11."""
    study = study_of(
        "narrow",
        1,
        algorithm={"weights": "uniform"},
        transforms=[{"name": "secure_sum", "fraction_bits": 7, "bound": 4.0, "bits": 12}],
    )
    packed = []

    def watch(site, topic, header, reply):
        arrays = decode(reply)[1].arrays if topic == "secure" else {}
        packed.extend(one.nbytes for name, one in arrays.items() if name == "packed")
        return reply

    consortium.change = watch
    consortium.conduct(study)
    simulation = simulated(consortium, study)
    mine, its = (
        load_file(one / "model.safetensors") for one in (consortium.run(study), consortium.folder / "simulated")
    )
    assert all(np.abs(mine[array] - its[array]).max() <= 1e-6 for array in its)
    # The packed answers have the bytes that the simulation counts: 12 of the 32 bits of a plain answer.
    traffic = simulation["methods"][0]["meters"]["traffic"]
    assert packed == [traffic["bytes_up_a_site_a_round"]] * len(NAMES)
    assert packed[0] / (traffic["bytes_down_a_site_a_round"] + 4) == pytest.approx(12 / 32, abs=0.06)


# ---- by the sites' lines ----

BY_LINE = {"name": "auto", "megabits": 1.0, "seconds": 1000.0, "smallest": 8}
"""At 12e-6 megabits a second, 1,500 bytes take a thousand seconds."""


def lined(**lines):
    words = {**BY_LINE, **({"lines": lines} if lines else {})}
    model = {"name": "mlp", "hidden": [64]}
    return study_of("lines", 2, model=model, transforms=[words], deploy={"sites": list(NAMES)})


@pytest.mark.slow
def test_each_site_is_sent_what_its_line_carries_and_both_engines_agree(consortium):
    study, seen = lined(bo=12e-6), {}

    def watch(site, topic, header, reply):
        seen.setdefault(site, set()).add(body_bytes(reply)) if topic == "round" else None
        return reply

    consortium.change = watch
    consortium.conduct(study)
    simulated(consortium, study)
    records, folder = consortium.rounds(study), consortium.folder / "simulated"
    theirs = list(RunFolder(folder).records())
    # The two with fast lines answer with whole numbers, the third with at most as many bytes as its line carries.
    assert seen["freetown"] == seen["kenema"]
    assert max(seen["bo"]) <= 1500 < min(seen["kenema"])
    for ours, its in zip(records, theirs, strict=True):
        for word in ("bytes_down", "bytes_up"):
            assert ours["measures"]["arrays"][word] == its[word]
        assert ours["measures"]["compression"] == its["measures"]["compression"]
        (slow, fast) = ours["measures"]["compression"]["lines"]
        assert (slow["sites"], fast["sites"], fast["down"]) == (["bo"], ["freetown", "kenema"], "none")
    mine, its = (load_file(one / "model.safetensors") for one in (consortium.run(study), folder))
    assert all(np.abs(mine[array] - its[array]).max() <= 1e-4 for array in its)
    report = replay(read_source(consortium.run(study)))
    assert (report.problem, report.replayed) == ("", 2)
    assert "from bo; none to and none from freetown, kenema." in (consortium.run(study) / "result.json").read_text()


def test_measured_lines_become_part_of_what_is_approved(tmp_path):
    home = make_coordinator(tmp_path / "coordinator", 1)
    keep_lines(home, {"bo": 0.5, "elsewhere": 3.0})
    keep_lines(home, {"freetown": 8.0})
    assert known_lines(home) == {"bo": 0.5, "elsewhere": 3.0, "freetown": 8.0}
    for damaged in ("{", "[1]", '{"bo": "fast"}', '{"bo": null}'):
        (tmp_path / "coordinator" / "kept.json").write_bytes((home.path / "lines.json").read_bytes())
        (home.path / "lines.json").write_text(damaged)
        assert known_lines(home) == {}
        keep_lines(home, {"bo": 0.5})
        assert known_lines(home) == {"bo": 0.5}
        (home.path / "lines.json").write_bytes((tmp_path / "coordinator" / "kept.json").read_bytes())
    first = enqueue(home, lined(), "ann")
    study, _ = read_submission(home.folder(first))
    assert study.transforms[0].settings["lines"] == {"bo": 0.5, "freetown": 8.0}
    # The same study again is the one that is there, though a line has shown another speed since.
    keep_lines(home, {"bo": 0.1})
    assert enqueue(home, lined(), "ann") == first
    assert enqueue(home, study, "ann") == first
    # A file of another study that cannot be read, or is of another version, is in nobody's way.
    for name, words in (("damaged", "{"), ("of another version", '{"study": {"later": 1}}'), ("empty", "[]")):
        (home.path / "studies" / name).mkdir()
        (home.path / "studies" / name / "study.json").write_text(words)
    assert enqueue(home, lined(), "ann") == first
    for name in ("damaged", "of another version", "empty"):
        shutil.rmtree(home.path / "studies" / name)
    # What somebody says is not overruled, and is another study.
    other, _ = read_submission(home.folder(enqueue(home, lined(bo=2.0), "ann")))
    assert other.transforms[0].settings["lines"] == {"bo": 2.0, "freetown": 8.0}
    plain, _ = read_submission(home.folder(enqueue(home, study_with("quantize"), "ann")))
    assert "lines" not in plain.transforms[0].settings
    # Status tells what the rounds of a study chose.
    (home.folder(first) / "run").mkdir()
    line = {"down": "none", "up": "moderate", "count": 1, "sites": ["bo"]}
    record = {
        "round": 1,
        "seconds": 1.0,
        "bytes_down": 1,
        "bytes_up": 1,
        "measures": {"compression": {"lines": [line]}},
    }
    (home.folder(first) / "run" / "rounds.jsonl").write_text(json.dumps(record) + "\n")
    told = {one["study"]: one["compression"] for one in coordinator_status(home)["studies"]}
    assert told[first] == ["Compression chosen for each site's line: none to and moderate from bo."]
    assert {len(notes) for study, notes in told.items() if study != first} == {0}


def test_a_study_without_a_site_says_nothing_of_its_line_width_or_factor():
    """Amended, and trained again after a withdrawal: else the new study would be refused for a site that is not there.

    The lines of all sites are part of every study that is compressed by them, as the coordinator fills them in.
    """
    words = {"transforms": [{**BY_LINE, "lines": {"bo": 2.0, "kenema": 3.0}}], "budget": {"sites": {"bo": 20.0}}}
    algorithm = {"name": "federated_dropout", "width": 0.5, "widths": {"bo": 1.0}}
    more = {"model": {"name": "mlp", "hidden": [8]}, "deploy": {"sites": list(NAMES)}}
    study = study_of("less", 1, algorithm=algorithm, **words, **more)
    left = without_sites(study, ["bo"])
    assert left.deploy.sites == ["freetown", "kenema"]
    assert left.transforms[0].settings["lines"] == {"kenema": 3.0}
    assert (left.algorithm.settings["widths"], left.budget.sites) == ({}, {})
    links_of(left, left.deploy.sites)
    with pytest.raises(Refusal, match="no site called 'bo'"):  # as it would be with its own words
        links_of(study.model_copy(update={"deploy": left.deploy}), left.deploy.sites)


def test_status_tells_the_line_of_a_site():
    site = {"revoked": "", "present": True, "late": "", "warning": "", "until": "2030-01-01", "line": 0.5}
    assert site_words(site, alive=True) == "connected, line of 0.5 Mbit/s (certificate until 2030-01-01)"
