"""What answering requests needs of a site's home: its decisions, its rows, its keys, and its record of what left."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509 import Certificate

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message
from wardround.data.table import Table
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.release.gate import ReleaseClaim
from wardround.deploy.site.release.release_list import Releases
from wardround.deploy.site.transcript_check import OwnFindings
from wardround.deploy.trust.certificates import Key
from wardround.privacy.budget import Budget
from wardround.study.file import Study


class SiteAccess(Protocol):
    """What the request handler needs of the site's home."""

    @property
    def name(self) -> str: ...

    def refuse_distrusted(self) -> None:
        """Raise a refusal where the site no longer answers this coordinator at all."""
        ...

    def store_offer(
        self, study: str, content: Mapping[str, Any], submitter: str, others: int | None = None, amends: str = ""
    ) -> bool:
        """Put a study before the site's administrator, or move the approval of the one that it amends.

        Gives whether somebody has to decide about it who was not asked before.
        """
        ...

    def state(self, study: str) -> tuple[Status, str]:
        """Whether a study may ask anything now, and if not why."""
        ...

    def approved_study(self, study: str) -> Study:
        """The study as it was approved."""
        ...

    def table(self, study: Study) -> Table:
        """The site's own rows for this study, read where they lie."""
        ...

    def folder(self, study: str) -> Path: ...

    def allow(self, study: str, recipe: Recipe) -> None:
        """Raise a refusal for what the policy forbids."""
        ...

    def smallest_cell(self, study: str) -> int: ...

    def smallest_sum(self, study: str) -> int:
        """Of how many sites a sum without noise must be at least."""
        ...

    def words_denied(self, study: str) -> tuple[str, ...]:
        """Words of free text that no analysis hears of."""
        ...

    def answer_about_itself(self, topic: str, header: Mapping[str, Any]) -> dict[str, Any]:
        """What is no study's: the version, the renewal of the site's certificate, the other's eye on each log."""
        ...

    def signing_keys(self) -> tuple[Key, Certificate]:
        """The site's own key, and the certificate of the consortium's authority."""
        ...

    def roster_keys(
        self, study: str, roster: Sequence[str], certificates: Mapping[str, Any]
    ) -> dict[str, EllipticCurvePublicKey]:
        """The keys of a round's sites; refused unless they are the approved study's."""
        ...

    def second_key(self, study: str, roster: Sequence[str], certificate: str) -> EllipticCurvePublicKey:
        """The key of the second server; refused unless it is the approved study's."""
        ...

    def budget(self) -> Budget:
        """The site's privacy ledger, under what its policy allows now."""
        ...

    def receive_transcript(self, study: str, message: Message) -> tuple[dict[str, Any], OwnFindings]:
        """Keep and check the transcript that comes with the model; gives words of the reply, and what was found."""
        ...

    def releases(self, study: str) -> Releases:
        """All that may leave for an approved study."""
        ...

    def claims(self, study: str) -> Iterable[ReleaseClaim]:
        """The places on that list which were used."""
        ...

    def check_statistics(self, study: str) -> None:
        """Raise a refusal where no further statistic about the study's dataset may be told."""
        ...

    def record_refusal(self, words: Mapping[str, Any]) -> None:
        """Write a refusal down."""
        ...

    def record_sent(self, entry: Mapping[str, Any]) -> None:
        """Write down what is about to leave; returns when it is on the disk."""
        ...

    def has_sent(self, sha256: str) -> bool:
        """Whether something with this hash was written down as leaving."""
        ...
