"""The exact model without a site that withdrew: the same study again, as if the site had never taken part.

Of a simulated run the site's rows are left out before anything looks at them (schema, preparation, training, stopping,
figures), while every other site keeps its number: splits, random keys and the order of rows depend on it, so all that
the others do stays the same. Where rounds draw their cohorts, the same are drawn, less the site. Of a deployed run a
new study is queued instead (`deploy/coordinator/queue.py`). Costs what the run cost.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.core.federation import PARTS, Federation
from wardround.data.load import fingerprint_of, load, settle_targets, split_table
from wardround.data.table import Partition
from wardround.engine import registry
from wardround.report.notes import retrain_note
from wardround.runs.folder import RunFolder, digest
from wardround.runs.read import require_manifest, require_result
from wardround.runs.result import RunResult
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.data_rules import shares_by_role
from wardround.study.file import ParticipationSection, Study, parse_study
from wardround.study.methods import Method, compared_methods, own_method
from wardround.workflows.run import OnRound, run
from wardround.workflows.self_adjustment import adjusted_before
from wardround.workflows.training_plan import check_methods

SIMULATED = ("run", "compare", "demo")


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a finished run that can be retrained."""
    manifest = require_manifest(folder)
    if manifest.get("kind") not in (*SIMULATED, "deployed"):
        raise Refusal(
            f"a run of `wardround {manifest.get('kind')}` trains no model of its own",
            where=str(folder),
            remedy="name the folder of a `run` or `compare`, or of a deployed study",
        )
    return manifest


def retrain(
    folder: Path,
    without: Sequence[str],
    out: Path,
    *,
    on_round: OnRound = lambda method, repeat, record: None,
) -> RunResult:
    """Train a simulated run again without some sites, into another folder; gives the result.

    Of a comparison the first split is trained again, whose models it had written.
    """
    manifest = manifest_of(folder)
    gone = sorted({*manifest.get("without", ()), *without})
    study = parse_study(manifest["study"], where=str(folder))
    names = names_in(folder)
    refuse_unknown(gone, names)
    unchanged = None if manifest.get("without") else manifest["data_hash"]
    setting = setting_without(study, study.study.seed, gone, names, unchanged)
    study = study_without(study, gone, names)
    study, methods = adjusted_before(study, methods_of(study, manifest["kind"], folder), RunFolder(folder))
    plans = check_methods(study, setting, methods)
    new = RunFolder.create(out, resume=False)
    result = run(study, new, methods, kind=manifest["kind"], plans=plans, on_round=on_round, notes=[retrain_note(gone)])
    new.amend_manifest(without=gone, retrained_from=manifest["study_hash"])
    return result


def methods_of(study: Study, kind: str, folder: Path) -> list[Method]:
    if kind == "run" or study.compare is None:
        return [own_method(study)]
    if study.compare.cases or study.compare.rates or study.compare.users == "each":
        raise Refusal(
            "this comparison trains in several settings, at several rates or for each site in turn",
            where=str(folder),
            remedy="remove the site from the data and compare again; a single `run` can be retrained",
        )
    return compared_methods(study)


# ---- the data without the site ----


def names_in(folder: Path) -> list[str]:
    """The sites of a finished run in the order of their numbers; their rows need not be there any more."""
    result = require_result(folder)
    return [site.name for site in result.sites] if isinstance(result, RunResult) else []


def setting_without(
    study: Study, seed: int, without: Sequence[str], names: Sequence[str], data_hash: str | None = None
) -> Setting:
    """The study's data as `load_setting` gives them, but some of the sites `names` have no rows.

    With `data_hash` the rows must be those of the first run, unless rows of the absent sites are gone already.
    """
    data = study.data
    raw = assemble.read_rows(data)
    partition: Partition | None = None
    if data.partition is not None:
        partition = registry.find("partition", data.partition.name).build(
            where="[data.partition]", **data.partition.settings
        )
    if isinstance(raw, Federation):
        setting = assemble.array_setting(raw, partition, seed, data)
        refuse_changed(setting.federation.sites, names, data_hash not in (None, setting.fingerprint))
        kept = without_rows(setting.federation, [list(names).index(name) for name in without])
        return replace(setting, federation=kept, fingerprint=digest([setting.fingerprint, sorted(without)]))
    # Dealt out from all rows, as it was: the others must get what they had.
    table = raw if partition is None else split_table(settle_targets(raw), partition, seed)
    others = replace(table, sites={name: frame for name, frame in table.sites.items() if name not in without})
    whole = len(table.sites) == len(names)
    others_of = [name for name in names if name not in without]
    refuse_changed(list(others.sites), others_of, whole and data_hash not in (None, fingerprint_of(raw)))
    loaded = load(
        others,
        seed=seed,
        shares=tuple(data.shares),
        shares_at=shares_by_role(study),
        by=data.split_by or "",
        missing_columns=data.missing_columns,
        missing_target=data.missing_target,
        empty_sites=data.empty_sites,
        **data.preparation.model_dump(),
    )
    classes = loaded.federation.task.classes
    positive = classes.index(loaded.table.positive) if loaded.table.positive in classes else max(0, len(classes) - 1)
    tables = {site.name: site for site in assemble.training_tables(loaded)}
    columns = next(iter(tables.values())).table.iloc[:0]
    return Setting(
        federation=with_places(loaded.federation, names),
        fingerprint=loaded.fingerprint,
        positive=positive,
        notes=loaded.notes,
        truth=dict(loaded.table.truth),
        tables=tuple(tables.get(name, Site(name, columns)) for name in names),
    )


def refuse_changed(there: Sequence[str], expected: Sequence[str], changed: bool) -> None:
    """Exact means from the same rows: other sites, or other rows than then, cannot give the same model."""
    if list(there) != list(expected) or changed:
        raise Refusal(
            "the data have changed since this run",
            where="[data]",
            remedy="restore them as they were (the rows of the site that leaves may be gone), or run the study again",
        )


def refuse_unknown(without: Sequence[str], names: Sequence[str]) -> None:
    for name in without:
        if name not in names:
            remedy = registry.suggest_name(name, tuple(names[:100]))
            raise Refusal(f"there was no site called '{name}' in this run", where="--without", remedy=remedy)
    if len(set(names) - set(without)) < 1:
        raise Refusal("no site would be left", where="--without", remedy="leave one in")


def with_places(federation: Federation, names: Sequence[str]) -> Federation:
    """The same rows with an empty place for every further name, so that each site has its old number."""
    counts = np.zeros((len(names), len(PARTS)), np.int64)
    for name, row in zip(federation.sites, federation.counts, strict=True):
        counts[list(names).index(name)] = row
    totals = counts.sum(axis=1)
    return replace(federation, sites=tuple(names), counts=counts, first=np.cumsum(totals) - totals)


def without_rows(federation: Federation, numbers: Sequence[int]) -> Federation:
    """Without the rows of these sites, which keep their places."""
    totals = federation.counts.sum(axis=1)
    keep = np.ones(len(federation.x), bool)
    for number in numbers:
        keep[federation.first[number] : federation.first[number] + totals[number]] = False
    counts = federation.counts.copy()
    counts[list(numbers)] = 0
    # Rows may lie in any order of sites: count those that go before each site's first.
    before = np.concatenate([[0], np.cumsum(~keep)])
    return replace(
        federation,
        x=federation.x[keep],
        y=federation.y[keep],
        counts=counts,
        first=federation.first - before[federation.first],
        groups={name: column[keep] for name, column in federation.groups.items()},
    )


# ---- the study without the site ----


def study_without(study: Study, without: Sequence[str], names: Sequence[str]) -> Study:
    """The study's words for a run in which these sites are never there."""
    said = assemble.participation_of(study, names, study.study.seed)
    rounds = range(1, study.study.rounds + 1)
    if study.participation == ParticipationSection():
        present = {}
    else:
        cohorts = {number: {int(site) for site in said.cohort(number)} for number in rounds}
        present = {
            name: spans([number for number in rounds if site in cohorts[number]], study.study.rounds)
            for site, name in enumerate(names)
        }
        gone = {names.index(name) for name in without}
        alone = [number for number in rounds if cohorts[number] <= gone]
        if alone:
            raise Refusal(
                f"in round {alone[0]} nobody but {', '.join(without)} took part",
                where="[participation]",
                remedy="run the study again on data without the site, with more sites in a round",
            )
    present |= dict.fromkeys(without, spans([], study.study.rounds))
    return without_settings_of(study, without).model_copy(
        update={"participation": ParticipationSection(present=present)}
    )


def spans(rounds: Sequence[int], most: int) -> str:
    """Rounds as [participation] present writes them; none: the one after the last.

    >>> spans([1, 2, 3, 7], 9), spans([], 9)
    ('1-3, 7', '10')
    """
    runs: list[list[int]] = []
    for number in rounds:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or str(most + 1)


def without_settings_of(study: Study, without: Sequence[str]) -> Study:
    """The study with no word of these sites as asking site or partners."""
    if study.study.user in without:
        raise Refusal(
            f"the model was trained for {study.study.user}, the site that is to be left out",
            where="[study] user",
            remedy="delete the model, or train one for another site",
        )
    if study.partners is None:
        return study
    said = study.partners
    partners = said.model_copy(
        update={
            "withdrawn": sorted({*said.withdrawn, *without}),
            "by_hand": None if said.by_hand is None else [one for one in said.by_hand if one not in without],
            "limits": {name: limit for name, limit in said.limits.items() if name not in without},
        }
    )
    return study.model_copy(update={"partners": partners})
