"""Compressed rounds over sites' real homes: the bytes of the simulation, and what is kept, refused and told."""

import struct

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.in_process import NAMES, Consortium, die_at, study_of
from tests.support.results import plain
from wardround.core.contracts import Message
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.runs.folder import RunFolder
from wardround.study.methods import own_method
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
