"""Keys that only their owner reads, never overwritten, and never taken for something they are not."""

import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wardround.core.errors import Refusal
from wardround.incentives.ledger_keys import make_key, public_key, read_key, read_public_keys, signature_problem

# RFC 8032, section 7.1, test 3: secret, public, message, signature.
SECRET = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"
PUBLIC = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
MESSAGE = "af82"
SIGNATURE = (
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
)


def test_made_for_the_owner_alone_and_read_back(tmp_path):
    path = tmp_path / "va.key"
    pem = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert pem.startswith("-----BEGIN PUBLIC KEY-----")
    assert public_key(read_key(path)) == pem
    assert make_key(tmp_path / "other.key") != pem


def test_signatures_are_those_of_the_standard():
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET))
    keys = read_public_keys({"va": public_key(key)})
    assert keys["va"].public_bytes_raw().hex() == PUBLIC
    assert signature_problem(keys, "va", SIGNATURE, bytes.fromhex(MESSAGE)) == ""
    assert signature_problem(keys, "va", SIGNATURE, b"af83") == "the signature is not 'va''s"
    assert "public key was not given" in signature_problem(keys, "zurich", SIGNATURE, bytes.fromhex(MESSAGE))


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "va.key"
    make_key(path)
    before = path.read_bytes()
    with pytest.raises(Refusal, match="keep the key that is there"):
        make_key(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "va.key"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(Refusal, match="thers may read this private key"):
        read_key(path)


def test_files_that_hold_no_such_key(tmp_path):
    with pytest.raises(Refusal, match="No such file"):
        read_key(tmp_path / "nowhere.key")
    with pytest.raises(Refusal, match="choose a folder that exists"):
        make_key(tmp_path / "nowhere" / "va.key")
    curve = ec.generate_private_key(ec.SECP256R1())
    other = curve.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for number, content in enumerate((b"", b"no key", other)):
        path = tmp_path / f"{number}.key"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(Refusal, match="no Ed25519 private key"):
            read_key(path)
    public = curve.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for pem in ("", "no key", public.decode()):
        with pytest.raises(Refusal, match=r"no Ed25519 public key in PEM .site va"):
            read_public_keys({"va": pem})
