"""The model card of a finished run, simulated or deployed: what the model is for, how good it is, where it ends.

Written from the run folder alone (manifest, result, rounds, models) as model_card.json for programs and model_card.md
for people. A card travels further than a run folder, so it holds less: counts and figures of sites with fewer patients
than the smallest cell in any part are withheld, with as many others as it takes that they cannot be worked out from
the totals; remarks on the data stay in the report.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.report.model_card.text import card_text
from wardround.report.model_card.tripod import tripod_items
from wardround.runs.folder import RunFolder
from wardround.runs.models import model_paths
from wardround.runs.read import require_manifest, require_result
from wardround.runs.result import MethodResult, RunResult
from wardround.runs.scores import GroupScores, MetricValue

SMALLEST_CELL = 10
MOST_LISTED = 50
"""Sites up to which each has a line of its own."""
PARTS = ("train", "validation", "test")
SPENT = ("level", "delta", "noise_multiplier", "clip", "sample_epsilon", "site_epsilon", "words")
Facts = dict[str, Any]
FEW = {"undefined": "too few patients"}


def write_card(folder: Path, *, smallest_cell: int = SMALLEST_CELL) -> Path:
    """Write both files into the folder of a finished run; gives the one for people."""
    facts = card_facts(folder, smallest_cell=smallest_cell)
    RunFolder(folder).write_card(facts)
    path = folder / "model_card.md"
    write_whole(path, card_text(facts).encode())
    return path


def card_facts(folder: Path, *, smallest_cell: int = SMALLEST_CELL) -> Facts:
    """All that the card tells, as plain values."""
    manifest, result = require_manifest(folder), require_result(folder)
    if not isinstance(result, RunResult):
        raise Refusal("this run trained no model", where=str(folder), remedy="name the folder of a `run` or `compare`")
    study = manifest["study"]
    deployed = result.kind == "deployed"
    rows = {site.name: {part: getattr(site, part) or 0 for part in PARTS} for site in result.sites}
    if not deployed:  # whoever has no rows at all, such as a site that was left out, is no part of this
        rows = {name: parts for name, parts in rows.items() if any(parts.values())}
    withheld = withheld_sites(rows, smallest_cell, zero_is_few=deployed)
    rounds = RunFolder(folder).records()
    card: Facts = {
        "name": result.study,
        "purpose": study["study"].get("purpose", ""),
        "trained": "over real sites" if deployed else "in a simulation on one machine",
        "finished": manifest.get("finished"),
        "task": result.task.plain(),
        "model": {"name": study["model"]["name"], "files": model_files(folder)},
        "data": data_facts(rows, withheld, smallest_cell),
        "left_out": len(manifest.get("without", ())),
        "metric": result.metric,
        "repeats": result.repeats or 1,
        "methods": [method_facts(one, withheld, rows, rounds, smallest_cell) for one in result.methods],
        "privacy": privacy_facts(study, result.methods),
        "remarks": len(result.notes),
        "versions": {key: manifest.get(key) for key in ("wardround", "python", "platform")}
        | {"packages": manifest.get("packages", {})},
        "hashes": {"study": manifest["study_hash"], "data": manifest.get("data_hash")},
        "seed": study["study"].get("seed"),
    }
    return {**card, "reporting": tripod_items(study, result, card)}


# ---- what may be told ----


def withheld_sites(rows: Mapping[str, Mapping[str, int]], cell: int, *, zero_is_few: bool) -> set[str]:
    """Sites with too few patients in some part, and the smallest others until no total gives one of them away.

    A real site tells 0 for any number below its own smallest cell (`zero_is_few`); in a simulation 0 is none at all.
    """
    few = {
        name for name, parts in rows.items() if any(0 < n < cell or (zero_is_few and n == 0) for n in parts.values())
    }
    if not few:
        return few
    hidden, summed = set(few), {part: sum(rows[one][part] for one in few) for part in PARTS}
    by_size = sorted((name for name in rows if sum(rows[name].values())), key=lambda name: sum(rows[name].values()))
    for name in by_size:
        if len(hidden) >= 2 and all(total >= cell for total in summed.values()):
            break
        if name not in hidden:
            hidden.add(name)
            summed = {part: summed[part] + rows[name][part] for part in PARTS}
    return hidden


def public_count(number: int, cell: int) -> int | str:
    return number if number == 0 or number >= cell else f"fewer than {cell}"


def data_facts(rows: Mapping[str, Mapping[str, int]], withheld: set[str], cell: int) -> Facts:
    totals = {part: public_count(sum(one[part] for one in rows.values()), cell) for part in PARTS}
    listed = {name: dict(parts) for name, parts in rows.items() if name not in withheld}
    return {
        "sites": sum(1 for parts in rows.values() if any(parts.values())) or len(rows),
        "rows": totals,
        "by_site": listed if len(rows) <= MOST_LISTED else {},
        "withheld": len(withheld),
        "smallest_cell": cell,
    }


def method_facts(
    method: MethodResult,
    withheld: set[str],
    rows: Mapping[str, Any],
    rounds: Sequence[Mapping[str, Any]],
    cell: int,
) -> Facts:
    """A method's figures and what its training took; of sites only those whose patients are enough."""
    scores = method.scores
    own = [one for one in rounds if one["method"] == method.name and one["repeat"] == 0]
    by_site = {
        name: figures
        for name, figures in scores.sites.items()
        if name not in withheld and len(rows) <= MOST_LISTED and rows.get(name, {}).get("test", 0) >= cell
    }
    return {
        "name": method.name,
        "label": method.label,
        "algorithm": method.algorithm,
        "settings": method.settings,
        "figures": {name: figure(told) for name, told in scores.weighted.items()},
        "between_sites": {name: told.value for name, told in scores.sd_between_sites.items()},
        "by_site": {name: {key: figure(told) for key, told in one.items()} for name, one in by_site.items()},
        "groups": group_facts(scores.groups, cell),
        **clinical_facts(method, cell),
        "interval_level": 0.95 if scores.intervals is None else scores.intervals.level,
        "rounds": method.rounds,
        "seconds": sum(float(one["seconds"]) for one in own),
        "bytes_down": sum(int(one["bytes_down"]) for one in own),
        "bytes_up": sum(int(one["bytes_up"]) for one in own),
        "energy": method.meters.get("energy", {}).get("words", ""),
        "took_part": rounds_by_site(own),
        "partners_chosen": None if method.partners is None else len(method.partners),
    }


def clinical_facts(method: MethodResult, cell: int) -> Facts:
    """Calibration and operating point over all patients; a share of few patients would tell how many they are."""
    told: Facts = {}
    if method.clinical is None:
        return told
    if (calibration := method.clinical.calibration) is not None:
        told["calibration"] = {
            "in_the_large": figure(calibration.in_the_large),
            "slope": figure(calibration.slope),
        }
    if (point := method.clinical.operating_point) is not None and point.threshold is not None:
        counts, rows = point.all, point.all.rows or 0
        among = {
            "sensitivity": counts.with_outcome,
            "specificity": rows - counts.with_outcome,
            "ppv": counts.flagged,
            "npv": rows - counts.flagged,
        }
        shares = {name: figure(getattr(counts, name)) if n >= cell else FEW for name, n in among.items()}
        told["operating_point"] = {"threshold": point.threshold, "rule": point.rule, **shares}
    return told


def figure(told: MetricValue) -> Facts:
    known, kept = told.plain(), ("value", "low", "high", "undefined", "no_interval")
    return {key: known[key] for key in kept if known.get(key) is not None}


def group_facts(groups: Mapping[str, Mapping[str, GroupScores]], cell: int) -> Facts:
    """Figures by group of patients: column → group → {"rows": ..., metric: figure}; small groups are withheld."""
    told: Facts = {}
    for column, values in groups.items():
        enough = {name: one for name, one in values.items() if (one.rows or 0) >= cell}
        told[column] = {
            "groups": {name: {key: figure(told) for key, told in one.metrics.items()} for name, one in enough.items()},
            "withheld": len(values) - len(enough),
        }
    return told


def rounds_by_site(rounds: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """In how many rounds each site took part; nothing where cohorts were too large to be named."""
    counts: dict[str, int] = {}
    for one in rounds:
        for site in one["sites"] if one["round"] else ():
            counts[site] = counts.get(site, 0) + 1
    return counts if len(counts) <= MOST_LISTED else {}


def privacy_facts(study: Mapping[str, Any], methods: Sequence[MethodResult]) -> Facts:
    """What was spent, if anything was promised, and what messages went through on their way."""
    meters = {one.name: one.meters.get("privacy") or {} for one in methods}
    spent = {
        # Not the steps site by site: a sampling rate tells how many patients a site has.
        name: {key: meter[key] for key in SPENT if key in meter}
        for name, meter in meters.items()
        if meter.get("level") is not None
    }
    return {
        "promised": study.get("privacy"),
        "spent": spent,
        "transforms": [one["name"] for one in study.get("transforms") or ()],
    }


def model_files(folder: Path) -> dict[str, str]:
    """The hash of every model of the run, as it was scored: the common ones, and those of single sites."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in model_paths(folder)}
