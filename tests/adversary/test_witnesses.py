"""Who vouches for a log or a transcript: keys that are pinned, and nobody who merely holds the authority's key."""

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import in_process
from tests.support.adversary.root import certificate_for
from tests.support.adversary.transcript import Entries, LyingCoordinator, forge, rounds_in
from tests.support.second_server import make_second
from wardround.cli.audit import pinned_words
from wardround.core.journals.journal_head import Head
from wardround.deploy.demo import make_coordinator
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.second.request_handler import SecondHandler
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.partner_summary import who_takes_part
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.trust import log_heads
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import read_certificate
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.log_heads import read_witness
from wardround.deploy.trust.pins import Partner, trust, write_partner
from wardround.deploy.trust.transcript.entries import TranscriptSigner, countersign_transcript, sign_transcript
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.deploy.trust.transcript.signatures import check_signatures

STUDY = in_process.study_of("witnessed", 5)
OTHER = "ab" * 32


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> LyingCoordinator:
    """A study of five rounds; bo has compared kenema's key by telephone, and never freetown's."""
    coordinator = LyingCoordinator(tmp_path_factory.mktemp("witnessed"))
    coordinator.conduct(STUDY)
    trust(coordinator.homes["bo"], "kenema", words_of(coordinator, "kenema"), by="ann")
    return coordinator


def words_of(coordinator: LyingCoordinator, site: str) -> str:
    return fingerprint(coordinator.homes[site].key.public_key())


def checked(honest: LyingCoordinator, change: Callable[[dict[str, Any], Head], None]) -> Any:
    """What bo finds where the countersignatures that come with the transcript are changed."""
    source = read_source(honest.run(STUDY))
    assert source.transcript.head is not None
    witnesses = json.loads(json.dumps(dict(source.witnesses)))
    change(witnesses, source.transcript.head)
    bo = honest.homes["bo"]
    return check_signatures(replace(source, witnesses=witnesses), read_certificate(bo.authority_path), pinned_words(bo))


def forged(honest: LyingCoordinator, site: str, head: Head) -> dict[str, Any]:
    """A countersignature in a site's name, by a key that the holder of the authority's key certified for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    seen = countersign_transcript(head, site, key).content()
    return {"countersigned": seen, "certificate": certificate_for(honest.home.path, site, key)}


def test_a_pinned_site_has_countersigned_and_others_only_in_name(honest: LyingCoordinator) -> None:
    found = checked(honest, lambda witnesses, head: None)
    assert found.problem == ""
    assert "countersigned by bo, kenema: they were shown the same transcript" in found.checked
    assert any("in the name of freetown, with keys that are not pinned here" in one for one in found.remarks)


def test_a_countersignature_forged_by_who_holds_the_authority_is_a_problem_where_the_key_is_pinned(
    honest: LyingCoordinator,
) -> None:
    """Else a coordinator that showed kenema another transcript would tell bo that both saw the same."""

    def forge_kenema(witnesses: dict[str, Any], head: Head) -> None:
        witnesses["kenema"] = forged(honest, "kenema", head)

    found = checked(honest, forge_kenema)
    assert found.problem == "the countersignature of kenema is by another key than the one that is pinned here"
    assert not any("kenema" in one for one in found.checked)


def test_where_no_key_is_pinned_it_counts_for_nothing(honest: LyingCoordinator) -> None:
    def forge_freetown(witnesses: dict[str, Any], head: Head) -> None:
        witnesses["freetown"] = forged(honest, "freetown", head)

    found = checked(honest, forge_freetown)
    assert not any("freetown" in one for one in found.checked)
    assert any("in the name of freetown" in one and "compare the eight words" in one for one in found.remarks)


def test_an_end_that_a_site_invented_is_remarked_and_not_believed(honest: LyingCoordinator) -> None:
    """A site that lies signs an end that nobody showed it. It must not make everybody distrust an honest coordinator,
    nor does it count as a witness."""

    def invent(witnesses: dict[str, Any], head: Head) -> None:
        stranger = TranscriptSigner(head.who, ec.generate_private_key(ec.SECP256R1()), "")
        end = sign_transcript(head.entries, OTHER, stranger)
        seen = countersign_transcript(end, "kenema", honest.homes["kenema"].key).content()
        witnesses["kenema"] = {**witnesses["kenema"], "countersigned": seen}

    found = checked(honest, invent)
    assert found.problem == ""
    assert "kenema has signed an end that the coordinator never signed, which does not count" in found.remarks
    assert not any("kenema" in one for one in found.checked)
    assert any("no countersignature of kenema" in one for one in found.remarks)


def test_another_end_that_the_coordinator_did_sign_is_a_problem(honest: LyingCoordinator, tmp_path: Path) -> None:
    """The counterpart: two ends under the coordinator's own key are two stories."""
    shutil.copytree(honest.run(STUDY), tmp_path / "run")

    def change(entries: Entries) -> None:
        rounds_in(entries)[0]["answers"]["bo"] = OTHER

    forge(honest.home, tmp_path / "run" / "transcript", change)
    other = read_source(tmp_path / "run").transcript.head
    assert other is not None

    def show(witnesses: dict[str, Any], head: Head) -> None:
        seen = countersign_transcript(other, "kenema", honest.homes["kenema"].key).content()
        witnesses["kenema"] = {**witnesses["kenema"], "countersigned": seen}

    assert "kenema has countersigned another transcript" in checked(honest, show).problem


def test_a_transcript_that_goes_back_further_than_a_crash_does_not_follow(
    honest: LyingCoordinator, tmp_path: Path
) -> None:
    """After a crash rounds are done again, three at most. Steps of three, one after the other, go back further: the
    state before round 1 is forgotten after round 5."""
    for name, order, words in (
        ("crash", [1, 2, 3, 4, 5, 3, 4, 5], ""),
        ("back", [1, 2, 3, 4, 5, 3, 1, 2, 3, 4, 5], "round 1 does not come after a round that was computed again"),
        ("far", [1, 2, 3, 4, 5, 2, 3, 4, 5], "round 2 stands after round 5"),
    ):
        shutil.copytree(honest.run(STUDY), tmp_path / name)

        def change(entries: Entries, order: list[int] = order) -> Entries:
            by = {one["round"]: one for one in rounds_in(entries)}
            return [entries[0], *(by[number] for number in order), entries[-1]]

        forge(honest.home, tmp_path / name / "transcript", change)
        assert replay(read_source(tmp_path / name)).problem == words


# ---- questions about the site itself ----


def older_and_newer(home: Any, words: Any) -> tuple[bytes, bytes]:
    """Two requests that show the coordinator's log: as it is, and an entry later."""
    made = []
    for what in ("one", "two"):
        home.log().append(event_entry("test", what=what))
        made.append(request_of_site({"head": asdict(home.log().head()), "certificate": words}))
    return made[0], made[1]


@pytest.mark.parametrize("whose", ["site", "second server"])
def test_heads_that_are_shown_in_parallel_do_not_take_the_witness_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Compared before the newer head was kept, and kept after it, the older one would hide that a log was cut."""
    hub = make_coordinator(tmp_path / "coordinator", 1)
    if whose == "site":
        consortium = in_process.Consortium(tmp_path / "sites", ("bo",))
        hub, home, handler = consortium.home, consortium.homes["bo"], RequestHandler(HomeAccess(consortium.homes["bo"]))
        answer = handler.answer
    else:
        home = make_second(tmp_path / "elsewhere", hub)
        answer = SecondHandler(home).answer
    older, newer = older_and_newer(hub, hub.certificate_path.read_text())
    done, countersign = threading.Event(), log_heads.countersign
    waited: list[int] = []

    def slow(head: Head, by: str, key: Any) -> Any:
        if not waited:  # the older one, which came first: it is compared already, and not kept yet
            waited.append(head.entries)
            done.wait(0.5)
        return countersign(head, by, key)

    monkeypatch.setattr(log_heads, "countersign", slow)
    said: list[Any] = []
    first = threading.Thread(target=lambda: said.append(read_reply(answer("heads", "server", older))))
    first.start()
    while not waited:
        done.wait(0.001)
    said.append(read_reply(answer("heads", "server", newer)))
    done.set()
    first.join()
    assert [one.status for one in said] == ["ok", "ok"]
    assert read_witness(home.witness_path).head.entries == waited[0] + 1


# ---- what whoever approves reads ----


def test_the_approval_says_where_a_study_names_another_key_than_the_pinned_one(honest: LyingCoordinator) -> None:
    home = honest.homes["freetown"]
    own, words = {site: words_of(honest, site) for site in honest.names}, words_of(honest, "bo")
    false = fingerprint(ec.generate_private_key(ec.SECP256R1()).public_key())
    former = fingerprint(ec.generate_private_key(ec.SECP256R1()).public_key())
    trust(home, "bo", words, by="ann")
    write_partner(home, Partner("kenema", own["kenema"], "first use", "2026-01-01", "ben", (former,)))

    def told(**changes: str) -> str:
        deploy = {"sites": list(honest.names), "fingerprints": {**own, **changes}}
        return "\n".join(who_takes_part(home, in_process.study_of("told", deploy=deploy)))

    assert "ANOTHER KEY" not in told()
    assert f"bo: {words} (compared by ann)" in told()
    assert f"bo: {false} (ANOTHER KEY than the one that was pinned here by ann)" in told(bo=false)
    assert f"kenema: {false} (ANOTHER KEY than the one that was pinned here by ben)" in told(kenema=false)
    # A key that was replaced, the new one signed by the old, is no other key.
    assert f"kenema: {former} (not compared yet)" in told(kenema=former)
