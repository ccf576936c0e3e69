"""`wardround explain` on one machine: every site trains and sends a classifier, every site chooses for itself."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from wardround import __version__
from wardround.classifiers.site_choices import competence_threshold
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.runs.explain.explain_result import ExchangedClassifier, ExplainResult, SplitRecord
from wardround.runs.explain.selection_file import Selection, classifier_file, site_folder, write_selection
from wardround.runs.folder import RunFolder
from wardround.runs.model_file import ModelFacts
from wardround.runs.sites import PredictionTask
from wardround.selection.known_patients import known_patients
from wardround.study.file import Study
from wardround.study.model_facts import how_cleaned, how_read
from wardround.study.sections.explain import ExplainSection
from wardround.workflows.explain.answers import main_cell, operating_cell, plain_settings, site_answer, split_record
from wardround.workflows.explain.choices import ChosenSite, choose_for, selection_settings
from wardround.workflows.explain.rows import ExplainRows, read_table, split_rows
from wardround.workflows.explain.senders import SentClassifier, collect_classifiers
from wardround.workflows.explain.words import chosen_strategy

UNFOLLOWED = (
    "a threshold of competence was confirmed, and following it needs the site's validation patients, which the run"
    " folder does not keep; say keep_neighbours = true in [explain] to keep them there"
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class ExplainPlan:
    """A study that was checked: its rows of the first split, and the classifiers that sites send."""

    study: Study
    said: ExplainSection
    table: Table
    rows: ExplainRows
    sent: Mapping[str, SentClassifier]
    absent: Mapping[str, str]


def check_explain(study: Study, say: Say = lambda words: None) -> ExplainPlan:
    """Read, split, train and exchange; what cannot work is refused before there is a folder."""
    said = study.explain or ExplainSection()
    said = said.model_copy(update={"units": {**study.data.units, **said.units}})
    if study.privacy is not None and said.classifier != "study":
        raise Refusal(
            f"classifiers of the kind '{said.classifier}' are trained without noise, and the study has [privacy]",
            where="[explain] classifier",
            remedy='set classifier = "study", which trains the [model] with it, or remove [privacy]',
        )
    say("reading")
    table = read_table(study)
    rows = split_rows(study, table, study.study.seed)
    say("training at each site")
    sent, absent = collect_classifiers(study, said, rows, study.study.seed)
    if said.hide_sources:
        rows, sent, absent = hidden(rows, sent, absent, study.study.seed)
    return ExplainPlan(study, said, table, rows, sent, absent)


def hidden(
    rows: ExplainRows, sent: Mapping[str, SentClassifier], absent: Mapping[str, str], seed: int
) -> tuple[ExplainRows, dict[str, SentClassifier], dict[str, str]]:
    """The same under names that tell nothing, dealt out in an order of chance."""
    names = [site.name for site in rows.sites]
    order = np.random.default_rng((seed, 0x5EC)).permutation(len(names))
    masks = {name: f"hospital {int(place) + 1}" for name, place in zip(names, order, strict=True)}
    sites = tuple(site._replace(name=masks[site.name]) for site in rows.sites)
    masked = {
        masks[name]: one._replace(site=masks[name], loaded=one.loaded._replace(source=masks[name]))
        for name, one in sent.items()
    }
    return (
        rows._replace(sites=tuple(sorted(sites, key=lambda site: site.name))),
        dict(sorted(masked.items())),
        {masks[name]: "it sent none" for name in absent},
    )


def run_explain(plan: ExplainPlan, folder: RunFolder, say: Say = lambda words: None) -> ExplainResult:
    """Every site's choice, over the splits; writes what `predict` follows, and the result."""
    study, said = plan.study, plan.said
    manifest = folder.begin(study.model_dump(mode="json"), plan.rows.fingerprint, kind="explain", resume=False)
    settings = selection_settings(said)
    seed = study.study.seed
    chosen: dict[str, ChosenSite] = {}
    absent = dict(plan.absent)
    for site in plan.rows.sites:
        if site.name in plan.sent:
            say(f"{site.name} chooses")
            try:
                chosen[site.name] = choose_for(site, plan.sent, settings, seed)
            except Refusal as refusal:
                absent[site.name] = f"It sent its classifier, and could not choose: {refusal}"
    if not chosen:
        raise Refusal("no site could choose", where=" ".join(absent.values()), remedy="see to what is said of each")
    splits = further_splits(plan, chosen, say)
    sites = {site.name: site for site in plan.rows.sites}
    answers = [site_answer(one, sites, said, splits[name]) for name, one in chosen.items()]
    for name, one in chosen.items():
        write_choice(plan, one, folder, name)
    result = ExplainResult(
        study=study.study.name,
        kind="explain",
        task=task_of(plan.rows),
        settings=plain_settings(said),
        split_by=study.data.split_by or "",
        repeats=said.repeats,
        classifiers=tuple(
            ExchangedClassifier(site=name, kind=one.kind, bytes=len(one.content), roc_auc=one.roc_auc, rows=one.rows)
            for name, one in plan.sent.items()
        ),
        absent=absent,
        sites=tuple(answers),
        truth=plan.rows.truth or None,
        notes=plan.rows.notes,
    )
    folder.write_result(result)
    folder.finish(manifest)
    return result


def further_splits(plan: ExplainPlan, first: Mapping[str, ChosenSite], say: Say) -> dict[str, list[SplitRecord]]:
    """The first split, further ones with other seeds, and each by row where patients have several rows."""
    study, said, seed = plan.study, plan.said, plan.study.study.seed
    by = study.data.split_by
    records = {name: [split_record(one, said, seed, "patient" if by else "row")] for name, one in first.items()}
    ways = [True, *([False] if by and said.by_row else [])]
    # By row the shuffles that prune rules tell nothing new and take the most time.
    settings = selection_settings(said)
    for repeat in range(said.repeats):
        for by_patient in ways:
            if repeat == 0 and by_patient:
                continue
            number = seed + repeat
            say(f"split {repeat + 1} of {said.repeats}{'' if by_patient else ', by row'}")
            rows = split_rows(study, plan.table, number, by_patient=by_patient)
            try:
                sent, absent = collect_classifiers(study, said, rows, number)
            except Refusal:
                continue
            if said.hide_sources:
                rows, sent, _ = hidden(rows, sent, absent, seed)
            for site in rows.sites:
                if site.name in sent and site.name in first:
                    try:
                        one = choose_for(site, sent, settings, number)
                    except Refusal:
                        continue
                    way = "patient" if by and by_patient else "row"
                    records[site.name].append(split_record(one, said, number, way))
    return records


def task_of(rows: ExplainRows) -> PredictionTask:
    return PredictionTask(
        kind="classification",
        target=rows.asked.target,
        classes=rows.asked.classes,
        features=tuple(rows.asked.columns),
        positive=rows.asked.positive,
    )


def write_choice(plan: ExplainPlan, chosen: ChosenSite, folder: RunFolder, site: str) -> None:
    """What `predict` follows: the strategy that test patients confirmed, and the classifiers it names.

    A threshold of competence needs the site's validation patients: they are kept only where the study says so.
    """
    cells = [operating_cell(chosen, cell) for cell in chosen.choice.cells]
    first = main_cell(cells, plan.said)
    strategy = chosen_strategy(first)
    used = chosen.choice.listed[: strategy.rules or 0] if strategy is not None and strategy.confirmed else ()
    own = chosen.choice.cell(first.point, first.keeps).strategies.get(strategy.name) if strategy is not None else None
    limit = competence_threshold(
        own if strategy is not None and strategy.confirmed else None,
        chosen.choice.k.k,
        selection_settings(plan.said),
        chosen.sources,
        json.loads(plan.sent[site].preparation.to_json()),
    )
    unfollowed = "" if limit is None or plan.said.keep_neighbours else UNFOLLOWED
    limit = limit if plan.said.keep_neighbours else None
    near = () if limit is None else limit.sources
    names = list(dict.fromkeys([site, *(one.rule.source for one in used), *near]))
    data = plan.study.data
    selection = Selection(
        site=site,
        study=plan.study.study.name,
        point=first.words,
        facts=ModelFacts(
            wardround=__version__,
            study=plan.study.study.name,
            method="explain",
            label="classifier selection",
            rounds=0,
            task=task_of(plan.rows),
            shape=(len(plan.rows.preparation.features),),
            recipe=None,
            preparation=None,
            reading={**how_read(data.settings), **how_cleaned(data)},
            units=plan.said.units,
        ),
        columns=dict(plan.rows.asked.columns),
        thresholds={name: float(first.thresholds[name] or 0.0) for name in names},
        files={name: classifier_file(name) for name in names},
        rules=tuple(one.rule.model_dump(mode="json", exclude_none=True) for one in used),
        words=tuple(one.rule.words(plan.said.units) for one in used),
        strategy=strategy.name if strategy is not None and strategy.confirmed else "rules",
        threshold=limit,
        unfollowed=unfollowed,
    )
    part = chosen.parts[0]
    known = None if limit is None else known_patients(part.x, part.scores, part.outcome).content()
    classifiers = {name: plan.sent[name].content for name in names}
    write_selection(site_folder(folder.path, site), selection, classifiers, known)
