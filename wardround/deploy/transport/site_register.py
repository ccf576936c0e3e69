"""Who belongs to a consortium, by the files in its coordinator's home, and the record there of what is sent to whom.

The half of a transport that needs no network: the same for our own processes and for a job of FLARE.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.wire import Malformed, decode_header
from wardround.deploy.trust.audit_log import AuditLog, sent_entry

REVOKED = "its certificate was revoked"


@dataclass
class SiteRegister:
    """Read anew whenever a file changes, so that a revocation counts within the running round."""

    home: CoordinatorHome
    log: AuditLog
    study: str = ""
    """Where one transport serves one study; else a request names it."""
    _revoked: tuple[float, frozenset[str]] = field(default=(-1.0, frozenset()))
    _last: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """By site, study and topic, the hash of what was said last."""

    def is_revoked(self, site: str) -> bool:
        return site in self.revoked_names()

    def revoked_names(self) -> frozenset[str]:
        path = self.home.path / "revoked.json"
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        if stamp != self._revoked[0]:
            self._revoked = (stamp, frozenset(self.home.revoked()))
        return self._revoked[1]

    def revoked(self) -> dict[str, str]:
        return dict.fromkeys(self.revoked_names(), REVOKED)

    def certificates(self) -> dict[str, str]:
        """Of all sites and second servers that were not revoked, in PEM."""
        paths = self.home.party_certificates()
        return {path.stem: path.read_text() for path in paths if not self.is_revoked(path.stem)}

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        """Write down what is about to be sent to whom; all of it is on the disk when this returns.

        What is sent again (to one that was away, or has not decided yet) is in the log already: it tells nobody more.
        """
        different = {id(body): body for body in bodies.values()}  # mostly one for all: hashed once
        hashes = {key: hashlib.sha256(body).hexdigest() for key, body in different.items()}
        studies = {key: self.study or study_named(body) for key, body in different.items()}
        new = {
            site: body
            for site, body in bodies.items()
            if not self.is_revoked(site) and self._last.get((site, studies[id(body)], str(topic))) != hashes[id(body)]
        }
        self.log.append(
            *(
                sent_entry(
                    {
                        "study": studies[id(body)],
                        "topic": str(topic),
                        "to": site,
                        "bytes": len(body),
                        "sha256": hashes[id(body)],
                    }
                )
                for site, body in new.items()
            )
        )
        self._last |= {(site, studies[id(body)], str(topic)): hashes[id(body)] for site, body in new.items()}
        return sum(map(len, new.values()))


def study_named(body: bytes) -> str:
    """The study that a request of ours is about; empty where it is about none."""
    try:
        return str(decode_header(body)[0].get("study", ""))
    except Malformed:
        return ""
