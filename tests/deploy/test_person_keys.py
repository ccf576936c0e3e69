"""Where roles.toml names keys of persons, an approval counts only if one of them signed exactly it, at this party."""

from pathlib import Path

import pytest

from tests.support import small_site
from tests.support import tiny_study as tiny
from wardround.deploy.party.decisions import Decision, Offer, decision_path, decision_status, read_decision
from wardround.deploy.person_keys import CONTEXT, is_signed, make_person_key, read_person_key
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.runs.json_files import read_json, write_json

Capture = pytest.CaptureFixture[str]


class Ward:
    """A site with an offer, a key of Fatu's that roles.toml names, and one that it does not."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        self.capsys, self.home = capsys, small_site.make(folder)
        self.offer: Offer = small_site.offered(self.home)
        self.own, self.other = folder / "fatu.key", folder / "other.key"
        public = tiny.call(capsys, "site", "person-key", self.own, "--without-passphrase", "--json").json["public"]
        make_person_key(self.other, None)
        (self.home.path / "roles.toml").write_text(f'[keys]\n"Fatu Kamara" = "{public}"\n')

    def decide(self, *words: str | Path) -> tiny.Said:
        return tiny.call(self.capsys, "site", *words, "--home", self.home.path)

    def approve(self, *words: str | Path) -> tiny.Said:
        return self.decide("approve", self.offer.id, "--yes", *words)

    @property
    def status(self) -> Status:
        return decision_status(self.home, self.offer.id)[0]


@pytest.fixture
def ward(tmp_path: Path, capsys: Capture) -> Ward:
    return Ward(tmp_path, capsys)


def decision_of(ward: Ward) -> Decision:
    found = read_decision(ward.home, ward.offer.id)
    assert found is not None
    return found


def test_only_a_key_that_is_named_approves(ward: Ward) -> None:
    assert "decisions here are signed" in ward.approve().err.casefold()
    assert "not among those of Fatu Kamara" in ward.approve("--key", ward.other).err
    assert "not of Ibrahim" in ward.approve("--key", ward.own, "--by", "Ibrahim").err
    assert ward.status is Status.WAITING
    assert ward.approve("--key", ward.own).code == 0
    assert (decision_of(ward).by, ward.status) == ("Fatu Kamara", Status.OK)
    assert decision_of(ward).signature in ward.home.audit_path.read_text()


@pytest.mark.parametrize("change", [{"until": "2099-01-01"}, {"data": "others"}, {"by": "Ibrahim"}, {"signature": ""}])
def test_an_approval_that_was_changed_or_written_by_hand_does_not_count(ward: Ward, change: dict[str, str]) -> None:
    """Whoever may write to the folder of decisions, but has no key, lets nothing leave."""
    ward.approve("--key", ward.own)
    path = decision_path(ward.home, ward.offer.id)
    write_json(path, {**read_json(path, ""), **change})
    status, why = decision_status(ward.home, ward.offer.id)
    assert status is Status.DENIED
    assert "does not count" in why


def test_an_approval_without_a_key_is_not_even_recorded(ward: Ward) -> None:
    from wardround.core.errors import Refusal

    with pytest.raises(Refusal, match="not signed with the key of Fatu Kamara"):
        approve(ward.home, ward.offer.id, by="Fatu Kamara")
    assert ward.status is Status.WAITING


def test_it_holds_for_one_party_and_for_decisions_alone(ward: Ward, tmp_path: Path) -> None:
    ward.approve("--key", ward.own)
    there = tmp_path / "there"
    there.mkdir()
    other = Ward(there, ward.capsys)  # a site of the same name has the same words, so its name is changed
    settings = other.home.path / "site.toml"
    settings.write_text(settings.read_text().replace("freetown", "kenema"))
    (other.home.path / "roles.toml").write_text((ward.home.path / "roles.toml").read_text())
    copied = decision_path(other.home, ward.offer.id)
    copied.parent.mkdir(parents=True, exist_ok=True)
    copied.write_bytes(decision_path(ward.home, ward.offer.id).read_bytes())
    assert type(other.home)(other.home.path).own_name == "kenema"
    assert decision_status(type(other.home)(other.home.path), ward.offer.id)[0] is Status.DENIED
    key = read_person_key(ward.own, lambda: b"")
    assert is_signed(key.public, key.sign(b"words"), b"words")
    assert not is_signed(key.public, key.sign(CONTEXT + b"words"), b"words")


def test_denials_and_withdrawals_are_signed_too(ward: Ward) -> None:
    assert ward.decide("deny", ward.offer.id).code == 2
    assert ward.approve("--key", ward.own).code == 0
    assert ward.decide("withdraw", ward.offer.id).code == 2
    assert ward.decide("withdraw", ward.offer.id, "--key", ward.own).code == 0
    assert ward.status is Status.WITHDRAWN


def test_a_signed_approval_does_not_move_to_an_amended_study(ward: Ward) -> None:
    """The site moves approvals by itself where nothing changed; it cannot sign for a person."""
    from wardround.deploy.protocol.study_id import study_id

    ward.approve("--key", ward.own)
    new = small_site.study(deploy={"deadline": 99.0})
    words = new.model_dump(mode="json")
    HomeAccess(ward.home).store_offer(study_id(new), words, "anna", None, ward.offer.id)
    assert read_decision(ward.home, study_id(new)) is None
    assert ward.status is Status.OK


def test_a_key_has_its_owners_passphrase_and_permissions(tmp_path: Path) -> None:
    from wardround.core.errors import Refusal

    path = tmp_path / "fatu.key"
    made = make_person_key(path, b"open sesame")
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_person_key(path, lambda: b"open sesame").public == made.public
    with pytest.raises(Refusal, match="passphrase is wrong"):
        read_person_key(path, lambda: b"open barley")
    with pytest.raises(Refusal, match="cannot be written"):
        make_person_key(path, None)
    path.write_text("nonsense")
    with pytest.raises(Refusal, match="no key of a person"):
        read_person_key(path, lambda: b"")
