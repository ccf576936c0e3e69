"""What the sites of a study agreed on, as one hash: columns, outcomes, preparation, positive outcome, order of sites.

It is bound to the model of every round of masked answers. A coordinator that told sites different preparations, so that
only one of them has anything to add to the sum, finds no common masks.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wardround.deploy.protocol.requests import AgreeColumns, PrepareRows, RequestBody, SettleSchema


def agreed_hash(settled: Mapping[str, Any], prepared: Mapping[str, Any]) -> str:
    """Of the words of both requests."""
    words = [settled["schema"], prepared["preparation"], prepared["positive"], list(prepared["numbers"])]
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def columns_hash(agreed: Mapping[str, Any]) -> str:
    """Of what the sites of an analysis agreed on."""
    words = [agreed["kinds"], agreed["levels"], list(agreed["numbers"])]
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def agreed_by(questions: Iterable[RequestBody]) -> str:
    """As the coordinator asks newcomers; nothing before there is an agreement."""
    questions = list(questions)
    columns = [columns_hash(one.words()) for one in questions if isinstance(one, AgreeColumns)]
    if columns:
        return columns[0]
    settled = [one.words() for one in questions if isinstance(one, SettleSchema)]
    prepared = [one.words() for one in questions if isinstance(one, PrepareRows)]
    return agreed_hash(settled[0], prepared[0]) if settled and prepared else ""


def agreed_in(folder: Path) -> str:
    """As a site wrote it down in the study's folder; nothing before it prepared its rows."""
    settled, prepared, columns = (folder / f"{name}.json" for name in ("settle", "prepare", "agree"))
    if columns.exists():
        return columns_hash(json.loads(columns.read_bytes()))
    if not prepared.exists():
        return ""
    return agreed_hash(json.loads(settled.read_bytes()), json.loads(prepared.read_bytes()))
