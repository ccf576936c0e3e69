"""A site's privacy ledger: what all its studies have spent, debited before anything leaves, never refunded.

One file of JSON lines, each on the disk before `debit` returns, each with the hash of the one before. A request that
comes again after a crash is not charged twice: it is known by study, round and the hash of what was asked. Another
question in a round that was answered already is refused: two answers would tell more than was charged for.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wardround.core.errors import Refusal
from wardround.core.files import sync_folder
from wardround.core.journal import Chain, Content, End, Format, Journal, read_tail
from wardround.privacy.accountant import Step, epsilon, merge_steps, renyi_epsilon

LEVELS = ("sample", "site")
FIELDS = {"level": str, "study": str, "round": int, "request": str, "steps": list, "previous": str, "hash": str}
WHAT = "privacy ledger"


class BudgetExhausted(Refusal):
    """A site has no privacy budget left for this: it is left out and named."""


class Charge(NamedTuple):
    """A line of the ledger: what one round of a study was charged."""

    level: str
    study: str
    round: int
    request: str
    steps: tuple[Step, ...]


def read_charge(content: Content) -> Charge:
    steps = merge_steps(Step(float(rate), float(noise), int(times)) for rate, noise, times in content["steps"])
    return Charge(content["level"], content["study"], content["round"], content["request"], steps)


REMEDY = "restore it from a copy; until then nothing may leave this site"
FORMAT = Format(WHAT, read_charge, REMEDY, FIELDS)


class Budget:
    """The ledger at `path`; all studies together may spend an epsilon of `cap`, at `delta` (none: no bound)."""

    def __init__(self, path: Path, cap: float | None = None, *, delta: float = 1e-5, site: str = "") -> None:
        if cap is not None and not cap > 0:
            raise Refusal(f"a cap of {cap:g} allows nothing", where=f"{WHAT} {path}", remedy="choose one above 0")
        self.path, self.cap, self.delta, self.site = path, cap, delta, site
        self._journal = Journal(path, FORMAT)

    def debit(
        self, study: str, round_number: int, steps: Iterable[Step], *, level: str = "sample", request: str = ""
    ) -> bool:
        """Charge what a round will spend, before it is done; whether it was charged now (not before).

        Raises BudgetExhausted where the cap would be passed, and writes nothing then.
        """
        if level not in LEVELS:
            raise Refusal(f"there is no privacy level '{level}'", where=WHAT, remedy="choose sample or site")
        wanted = merge_steps(steps)
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._journal.lock(write=True) as file:
            if new:
                sync_folder(self.path.parent)
            chain = self._check(file)
            if chain.torn:  # a line that a crash cut off was never acted upon: its debit had not returned
                self._journal.cut_torn_line(file, read_tail(file)[1])
            charges = [line.entry for line in chain.lines]
            for charge in charges:
                if (charge.level, charge.study, charge.round) == (level, study, round_number):
                    if (charge.request, charge.steps) == (request, wanted):
                        return False
                    raise Refusal(
                        f"round {round_number} of this study was charged for another request",
                        where=self._where(study),
                        remedy="ask again what was asked before, or go on with the next round",
                    )
            self._refuse_beyond(study, [charge for charge in charges if charge.level == level], wanted)
            content = {
                "level": level,
                "study": study,
                "round": round_number,
                "request": request,
                "steps": [list(step) for step in wanted],
            }
            self._journal.append(file, End(len(charges), chain.hashes[-1], "", 0), content)
            return True

    def total_epsilon(self, delta: float | None = None, *, level: str = "sample") -> float:
        """The epsilon of everything charged so far."""
        steps = [step for charge in self.charges() if charge.level == level for step in charge.steps]
        return epsilon(steps, self.delta if delta is None else delta)

    def charges(self) -> list[Charge]:
        if not self.path.exists():
            return []
        with self._journal.lock(write=False) as file:
            return [line.entry for line in self._check(file).lines]

    def _refuse_beyond(self, study: str, before: list[Charge], wanted: tuple[Step, ...]) -> None:
        if self.cap is None:
            return
        whole = [*(step for charge in before for step in charge.steps), *wanted]
        # The quick bound is the larger one: where it is within the cap, the tight one is.
        if renyi_epsilon(whole, self.delta) <= self.cap:
            return
        after = epsilon(whole, self.delta)
        if after > self.cap:
            raise BudgetExhausted(
                f"the privacy budget does not allow another round: epsilon would be {after:.3f}, and the cap is "
                f"{self.cap:g}",
                where=self._where(study),
                remedy="leave this site out, or let its administrator raise the cap in policy.toml",
            )

    def _where(self, study: str) -> str:
        return f"site {self.site}, study {study}" if self.site else f"{WHAT} {self.path}, study {study}"

    def _check(self, file: int) -> Chain[Charge]:
        """All of the ledger; refused where anything but a torn last line is wrong."""
        chain = self._journal.check(file)
        for violation in chain.violations[:1]:
            raise Refusal(
                f"the privacy ledger cannot be trusted: {violation.what}",
                where=f"{self.path}, line {violation.line}",
                remedy=REMEDY,
            )
        return chain
