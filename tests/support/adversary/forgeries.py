"""What a coordinator that holds its own key may write into a transcript: one false statement each."""

import json
from pathlib import Path

from tests.support.adversary.transcript import Entries, rounds_in
from tests.support.in_process import study_of
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay

STUDY = study_of("lies")
OTHER = "ab" * 32


def problem_of(run: Path) -> str:
    return str(replay(read_source(run)).problem)


def publish_another_model(entries: Entries) -> None:
    entries[-1]["model"] = OTHER


def publish_an_earlier_model(entries: Entries) -> None:
    entries[-1]["state"] = rounds_in(entries)[0]["state"]


def claim_another_state(entries: Entries) -> None:
    rounds_in(entries)[-1]["state"] = entries[-1]["state"] = OTHER


def send_another_model(entries: Entries) -> None:
    rounds_in(entries)[1]["sent"] = OTHER


def begin_with_another_model(entries: Entries) -> None:
    entries[0]["model"] = OTHER


def ask_with_another_seed(entries: Entries) -> None:
    entries[0]["method"]["seed"] += 1


def swap_the_study(entries: Entries) -> None:
    words = json.loads(entries[0]["words"])
    words["algorithm"]["learning_rate"] = 0.2
    entries[0]["words"] = json.dumps(words)


def leave_a_site_out(entries: Entries) -> None:
    del rounds_in(entries)[1]["answers"]["bo"]


def never_ask_a_site(entries: Entries) -> None:
    one = rounds_in(entries)[1]
    del one["answers"]["bo"]
    one["asked"].remove("bo")


def drop_a_round(entries: Entries) -> Entries:
    return [one for one in entries if one.get("round") != 2]


def stop_early(entries: Entries) -> Entries:
    kept = [one for one in entries if one.get("round", 0) < 3]
    kept[-1]["rounds"] = 2
    kept[-1]["state"] = rounds_in(kept)[-1]["state"]
    return kept


def swap_sums(entries: Entries) -> None:
    first, second, _ = rounds_in(entries)
    first["sum"], second["sum"] = second["sum"], first["sum"]


def cut_the_end(entries: Entries) -> Entries:
    return entries[:-1]


def judge_another_model(entries: Entries) -> None:
    next(one for one in entries if one["kind"] == "judged")["sent"] = OTHER


def invent_an_answer(entries: Entries) -> None:
    rounds_in(entries)[1]["answers"]["bo"] = OTHER


def say_that_bo_was_late(entries: Entries) -> None:
    one = rounds_in(entries)[1]
    one["absent"]["bo"] = "it was not connected"
    del one["answers"]["bo"]


def say_that_kenema_was_late(entries: Entries) -> None:
    one = rounds_in(entries)[1]
    one["absent"]["kenema"] = "it was not connected"
    del one["answers"]["kenema"]


def change_the_preparation(entries: Entries) -> None:
    entries[0]["agreed_preparation"] = OTHER
