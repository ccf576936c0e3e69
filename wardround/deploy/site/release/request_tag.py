"""A request's name by all of its bytes, a model of many megabytes included, at the speed of memory.

A keyed universal hash (GMAC, NIST SP 800-38D) in place of SHA-256: two requests of the same name are as improbable as a
guess of the key, for whoever knows neither key nor tags. The key is the site's own, one a study, and the tag is hashed
with it once more before it is written anywhere, so nothing that a coordinator may see tells of it. If the key is lost,
every request counts as another one, and what was answered is not answered again.
"""

import hashlib
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wardround.core.files import write_whole

NAME = "request.key"
NONCE = bytes(12)
"""Always the same: nothing is enciphered, and no tag is shown."""


class RequestTag:
    """Names the requests of one study; the key lies in its folder."""

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        if not path.exists():
            write_whole(path, secrets.token_bytes(32))
            path.chmod(0o600)
        self._key = path.read_bytes()
        self._hash = AESGCM(self._key)

    def name(self, content: bytes) -> str:
        return hashlib.sha256(self._key + self._hash.encrypt(NONCE, b"", content)).hexdigest()
