"""Sites that lie to two servers: named and left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.second_server import FIVE, MILD, Tapped, closed
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol import halves
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.release import two_server_round as at_site


@pytest.fixture
def consortium(tmp_path: Path) -> Tapped:
    return Tapped(tmp_path)


def lying_parcel(monkeypatch: Any, site: str, lie: Any) -> None:
    honest = halves.make_parcel

    def make_parcel(meeting: Any, name: str, weight: float, content: Any, **keys: Any) -> Any:
        return (
            honest(meeting, name, weight, content, **keys)
            if name != site
            else lie(honest, meeting, weight, content, keys)
        )

    monkeypatch.setattr(at_site, "make_parcel", make_parcel)


def another_seed(honest: Any, meeting: Any, weight: float, content: Any, keys: Any) -> Any:
    """Commits to one seed and seals another."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    from wardround.privacy.secure_sum.masks import digest
    from wardround.privacy.two_servers.envelope import seal_for

    true = honest(meeting, "bo", weight, content, **keys)
    about = halves.about_parcel(meeting, "bo", weight, true.commitment)
    sealed = seal_for(keys["second"], bytes(32) + content.deal.tobytes(), about)
    return true._replace(sealed=sealed, signature=keys["key"].sign(digest(about, sealed), ec.ECDSA(SHA256())))


def wrong_deal(honest: Any, meeting: Any, weight: float, content: Any, keys: Any) -> Any:
    """Moves its own distances, as one would who wants to pass as a good site."""
    deal = content.deal.copy()
    deal[: len(FIVE)] -= np.uint64(1 << 40)
    return honest(meeting, "bo", weight, content._replace(deal=deal), **keys)


@pytest.mark.parametrize(("lie", "why"), [(another_seed, "committed to"), (wrong_deal, "dealt wrong products")])
def test_a_site_whose_parts_do_not_fit_is_named_and_left_out(consortium, monkeypatch, lie, why) -> None:
    lying_parcel(monkeypatch, "bo", lie)
    study = consortium.study("lying", 1, **MILD)
    consortium.conduct(study)
    (one,) = consortium.rounds(study)
    assert (one["sites"], why in one["measures"]["absent"]["bo"]) == (sorted(set(FIVE) - {"bo"}), True)
    assert "bo" not in closed(consortium, study, 1)["chosen"]


def test_a_site_with_an_update_longer_than_the_bound_is_named_and_left_out(consortium) -> None:
    study = consortium.study("long", 1, **MILD)

    def longer(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != ("bo", "halves"):
            return reply
        words, message = decode(reply)
        masked = message.arrays["masked"].copy()
        masked[0] += np.uint64(1 << 31)  # twice the bound
        return encode(words, Message({"masked": masked}))

    consortium.change = longer
    consortium.conduct(study)
    (one,) = consortium.rounds(study)
    assert "longer than the bound" in one["measures"]["absent"]["bo"]
    assert "bo" not in one["sites"]


def test_an_honest_site_past_the_bound_says_so_before_anything_leaves(consortium) -> None:
    study = consortium.study("small-bound", 1, bound=1e-6, **MILD)
    with pytest.raises(Refusal, match="goes past 1e-06, the greatest length"):
        consortium.conduct(study)
    assert not consortium.passed("open")
