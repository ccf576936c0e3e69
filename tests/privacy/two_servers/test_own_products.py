"""Sites that deal the products of their own masks: the same Gram matrix as by hand, and wrong deals are found."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.privacy.two_servers import own_products as own
from wardround.privacy.two_servers import protocol
from wardround.privacy.two_servers.envelope import open_envelope, seal_for
from wardround.privacy.two_servers.in_process import seeded_draw
from wardround.privacy.two_servers.protocol import Meeting, Roll

SITES = ("a", "b", "c", "d")


class Parties:
    """Everybody's part, in the order in which messages travel; `lie` may change what a site deals to B."""

    def __init__(self, updates, roll=SITES, lie=lambda site, deal: deal, entries=70_000):
        self.meeting = meeting = Meeting("study", 1, "nonce", SITES, entries, 4.0, 1, "model")
        self.roll = Roll(tuple(roll), {})
        draw = seeded_draw(5)
        row, check = draw(32), draw(32)
        self.masked, self.seeds, of_a, of_b = {}, {}, {}, {}
        for site in roll:
            first, second = protocol.share_update(meeting, site, updates[site], draw)
            deal = own.deal_own(meeting, site, second.seeds[0], row, draw)
            self.masked[site], self.seeds[site] = first.masked, second.seeds
            of_a[site], of_b[site] = own.own_summands(meeting, site, deal.for_a), lie(site, deal.for_b)
        coefficients = own.coefficients_of(meeting, check, self.roll)
        self.blinds = own.blind(meeting, self.masked, row, coefficients, self.roll)
        found = own.mask_products(meeting, self.seeds, self.blinds, self.roll)
        share_a = protocol.share_of_a(meeting, self.masked, [], self.roll) + own.summands_of(meeting, of_a, self.roll)
        share_b = found.gram + own.summands_of(meeting, of_b, self.roll)
        self.gram = protocol.open_gram(meeting, share_a, share_b, self.roll)
        told = [own.check_sums(meeting, deals, coefficients, self.roll, self.roll.sites) for deals in (of_a, of_b)]
        self.wrong = [site for site, bad in zip(roll, found.check != told[0] + told[1], strict=True) if bad]


def some_updates(entries=70_000):
    rng = np.random.default_rng(1)
    rows = {site: rng.normal(size=entries) for site in SITES}
    return {
        site: row / np.linalg.norm(row) * length
        for (site, row), length in zip(rows.items(), (1, 2, 3, 0.1), strict=True)
    }


@pytest.mark.parametrize("roll", [SITES, ("a", "c", "d")])
def test_the_products_are_those_of_the_plain_numbers(roll):
    updates = some_updates()
    parties = Parties(updates, roll)
    # By hand: the rounded entries as Python's whole numbers.
    whole = {site: np.rint(updates[site] * 2.0**28).astype(np.int64).astype(object) for site in roll}
    expected = [[int(whole[one] @ whole[other]) for other in roll] for one in roll]
    assert parties.gram.products.tolist() == expected
    assert parties.wrong == []


@settings(max_examples=examples(30), deadline=None)
@given(site=st.sampled_from(SITES), place=st.integers(0, len(SITES)), bit=st.integers(0, 40))
def test_a_wrong_deal_is_found_and_its_dealer_named(site, place, bit):
    """One number off by 2^bit: it passes once in 2^(64 - bit), at most once in sixteen million times."""

    def lie(name, deal):
        changed = deal.copy()
        if name == site:
            changed[place] += np.uint64(1 << bit)
        return changed

    updates = {name: row[:64] for name, row in some_updates(64).items()}
    assert Parties(updates, lie=lie, entries=64).wrong == [site]


def test_what_travels_between_the_servers_is_noise():
    """Neither what A sends to B nor the halves tell anything: all bytes about equally often."""
    zeros = {site: np.zeros(70_000) for site in SITES}
    parties = Parties(zeros)
    for array in (parties.blinds.updates, parties.blinds.check, *parties.masked.values()):
        counts = np.bincount(np.ascontiguousarray(array).view(np.uint8).ravel(), minlength=256)
        assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 400  # chi-squared, 255 degrees of freedom


def test_an_envelope_is_for_one_holder_and_one_matter():
    key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    sealed = seal_for(key.public_key(), b"seed", b"study 1, round 2")
    assert open_envelope(key, sealed, b"study 1, round 2") == b"seed"
    assert open_envelope(other, sealed, b"study 1, round 2") is None
    assert open_envelope(key, sealed, b"study 1, round 3") is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert open_envelope(key, bytes(changed), b"study 1, round 2") is None
    for short in (b"", sealed[:65], sealed[:80]):
        assert open_envelope(key, short, b"study 1, round 2") is None
    again = seal_for(key.public_key(), b"seed", b"study 1, round 2")
    assert again[:65] != sealed[:65]


def test_an_envelope_by_another_way():
    """The same steps written out with the library's own pieces."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = ec.derive_private_key(7, ec.SECP256R1())
    sealed = seal_for(key.public_key(), b"seed", b"about", lambda size: hashlib.shake_128(b"x").digest(size))
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sealed[:65])
    numbers = key.public_key().public_numbers()
    holder = b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
    parts = (b"wardround envelope 1", sealed[:65], holder)
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    secret = HKDF(SHA256(), 32, None, info).derive(key.exchange(ec.ECDH(), point))
    assert ChaCha20Poly1305(secret).decrypt(bytes(12), sealed[65:], b"about") == b"seed"
