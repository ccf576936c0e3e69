"""A site's privacy ledger: what all its studies have spent, debited before anything leaves, never refunded.

One file of JSON lines, each on the disk before `debit` returns, each with the hash of the one before. A request that
comes again after a crash is not charged twice: it is known by study, round and the hash of what was asked. Another
question in a round that was answered already is refused: two answers would tell more than was charged for.

Each patient is in one part of a study's rows: training patients pay what is told of them while a model is prepared and
trained ("sample"), validation patients the looks at it ("validation"), test patients the final figures ("test"). In
another study the same patient may be in another part, so the total is that of the dearest part of every study.

A ledger that was cut or put back is still a chain. So its owner keeps its head elsewhere, too (`heads`), and a ledger
that ends before a head that was kept, or holds another line there, is refused: nothing may leave.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from wardround.core.errors import Refusal
from wardround.core.files import sync_folder
from wardround.core.journals.journal import ROOT, Chain, Content, End, Format, Journal, read_tail
from wardround.privacy.accountant import Step, epsilon, merge_steps, renyi_epsilon

PARTS = ("sample", "validation", "test")
"""Of patients: those who are trained on, those by whom a model is watched, and those who judge it in the end."""
LEVELS = (*PARTS, "site")
MOST_CHOICES = 27
"""Ways in which a patient may have been in one part of each study, up to which each way is accounted for."""
FIELDS = {"level": str, "study": str, "round": int, "request": str, "steps": list, "previous": str, "hash": str}
WHAT = "privacy ledger"
IN_TURN = threading.RLock()
"""Studies that are charged at the same time: whether there is a ledger is looked at and decided as one step."""


class BudgetExhausted(Refusal):
    """A site has no privacy budget left for this: it is left out and named."""


class Charge(NamedTuple):
    """A line of the ledger: what one round of a study was charged."""

    level: str
    study: str
    round: int
    request: str
    steps: tuple[Step, ...]


class KeptHead(NamedTuple):
    """How far the ledger went when its head was kept: so many lines, with this last hash; `name` says where."""

    name: str
    entries: int
    hash: str


def read_charge(content: Content) -> Charge:
    steps = merge_steps(Step(float(rate), float(noise), int(times)) for rate, noise, times in content["steps"])
    return Charge(content["level"], content["study"], content["round"], content["request"], steps)


REMEDY = "restore it from a copy; until then nothing may leave this site"
FORMAT = Format(WHAT, read_charge, REMEDY, FIELDS)


class Budget:
    """The ledger at `path`; all studies together may spend an epsilon of `cap`, at `delta` (none: no bound)."""

    def __init__(
        self,
        path: Path,
        cap: float | None = None,
        *,
        delta: float = 1e-5,
        site: str = "",
        heads: Callable[[], Sequence[KeptHead]] = lambda: (),
        keep: Callable[[int, str], None] = lambda entries, hash: None,
    ) -> None:
        """`heads` are those kept elsewhere, `keep` takes a new one after a debit."""
        if cap is not None and not cap > 0:
            raise Refusal(f"a cap of {cap:g} allows nothing", where=f"{WHAT} {path}", remedy="choose one above 0")
        self.path, self.cap, self.delta, self.site = path, cap, delta, site
        self._heads, self._keep = heads, keep
        self._journal = Journal(path, FORMAT)

    def debit(
        self, study: str, round_number: int, steps: Iterable[Step], *, level: str = "sample", request: str = ""
    ) -> bool:
        """Charge what a round will spend, before it is done; whether it was charged now (not before).

        Raises BudgetExhausted where the cap would be passed, and writes nothing then.
        """
        if level not in LEVELS:
            raise Refusal(f"there is no privacy level '{level}'", where=WHAT, remedy=f"choose one of {LEVELS}")
        with IN_TURN:
            return self._debit(study, round_number, merge_steps(steps), level, request)

    def _debit(self, study: str, round_number: int, wanted: tuple[Step, ...], level: str, request: str) -> bool:
        new = not self.path.exists()
        if new:
            self._refuse_behind((ROOT,))
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
            self._refuse_beyond(study, charges, Charge(level, study, round_number, request, wanted))
            content = {
                "level": level,
                "study": study,
                "round": round_number,
                "request": request,
                "steps": [list(step) for step in wanted],
            }
            end = self._journal.append(file, End(len(charges), chain.hashes[-1], "", 0), content)
            self._keep(end.entries, end.hash)
            return True

    def total_epsilon(self, delta: float | None = None, *, level: str = "sample") -> float:
        """The epsilon of everything charged so far, for a patient (whichever part it was in) or for a whole site."""
        return epsilon_of(self.charges(), self.delta if delta is None else delta, level=level)

    def charges(self) -> list[Charge]:
        with IN_TURN:
            if not self.path.exists():
                self._refuse_behind((ROOT,))
                return []
            with self._journal.lock(write=False) as file:
                return [line.entry for line in self._check(file).lines]

    def _refuse_beyond(self, study: str, before: Sequence[Charge], wanted: Charge) -> None:
        if self.cap is None:
            return
        after = epsilon_of([*before, wanted], self.delta, level=wanted.level, enough=self.cap)
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
        self._refuse_behind(chain.hashes)
        return chain

    def _refuse_behind(self, hashes: Sequence[str]) -> None:
        """Refuse a ledger that ends before a head that was kept, or holds another line there."""
        for problem in ledger_problems(hashes, self._heads())[:1]:
            raise Refusal(
                f"the privacy ledger is behind its anchored head: {problem}; nothing may leave this site",
                where=str(self.path),
                remedy="restore the ledger from a copy that holds all its lines",
            )


def ledger_problems(hashes: Sequence[str], heads: Iterable[KeptHead]) -> list[str]:
    """What the heads that were kept show to be wrong with a ledger whose lines have these hashes, after ROOT."""
    problems = []
    for head in heads:
        if head.entries >= len(hashes):
            problems.append(f"{head.name} names {head.entries} debits and the ledger has {len(hashes) - 1}")
        elif hashes[head.entries] != head.hash:
            problems.append(f"{head.name} names another debit {head.entries} than the ledger holds")
    return problems


def epsilon_of(charges: Iterable[Charge], delta: float, *, level: str = "sample", enough: float | None = None) -> float:
    """The epsilon of charges for whole sites, or for a patient: of each study the part that makes the total largest.

    Up to `enough`, a quick and larger bound will do. Of very many studies the older ones count with all their parts.
    """
    bounds = [bound_of(plan, delta, enough) for plan in plans_of(charges, level)]
    return max(bounds, default=0.0)


def bound_of(steps: tuple[Step, ...], delta: float, enough: float | None) -> float:
    if enough is not None and (quick := renyi_epsilon(steps, delta)) <= enough:
        return quick
    return epsilon(steps, delta)


def plans_of(charges: Iterable[Charge], level: str) -> set[tuple[Step, ...]]:
    """All that a record may have been charged with: its part in each study, where it is in one of several."""
    meant = (level,) if level == "site" else PARTS
    studies: dict[str, dict[str, list[Step]]] = {}
    for charge in charges:
        if charge.level in meant:
            studies.setdefault(charge.study, {}).setdefault(charge.level, []).extend(charge.steps)
    choices, ways = list[list[tuple[Step, ...]]](), 1
    for parts in reversed(studies.values()):
        each = sorted({merge_steps(steps) for steps in parts.values()})
        if ways * len(each) > MOST_CHOICES:
            each = [merge_steps(step for steps in each for step in steps)]
        ways *= len(each)
        choices.append(each)
    return {merge_steps(step for steps in way for step in steps) for way in product(*choices)}
