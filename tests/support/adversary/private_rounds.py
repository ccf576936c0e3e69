"""Private studies of the demonstration's patients, and what they left in the sites' ledgers."""

import json
from collections.abc import Callable
from typing import Any

from tests.support import in_process
from tests.support.adversary.noise import private_study
from wardround.deploy.site.release.privacy_budget import ledger_path
from wardround.privacy.budget import Budget
from wardround.study.file import Study

NAMES = in_process.NAMES
ROUNDS, BATCH, DELTA, EPSILON = 3, 32, 1e-3, 0.5
PROMISE = {"epsilon": EPSILON, "delta": DELTA}


def study_of(name: str, privacy: dict[str, Any] | None = None, **tables: Any) -> Study:
    return private_study(name, PROMISE if privacy is None else privacy, rounds=tables.pop("rounds", ROUNDS), **tables)


Listen = Callable[[str, str, bytes], bytes | None]


def listening(consortium: Any, hear: Listen) -> None:
    """Let every request pass `hear`, which may answer in the site's place or give another request."""
    ask = consortium.ask

    def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
        reply: bytes = ask(site, topic, hear(site, topic, body) or body, within)
        return reply

    consortium.ask = asked


def entries(consortium: Any, site: str, study: Study, levels: tuple[str, ...] = ("sample", "site")) -> list[Any]:
    ledger = Budget(ledger_path(consortium.homes[site]))
    return [one for one in ledger.charges() if one.study == consortium.id(study) and one.level in levels]


def agreement(consortium: Any, study: Study) -> dict[str, Any]:
    words: dict[str, Any] = json.loads((consortium.run(study) / "agreement.json").read_bytes())
    return words


def settings(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda recipe: {**recipe, "settings": {**recipe["settings"], **changes}}
