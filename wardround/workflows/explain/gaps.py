"""`wardround gaps` on one machine: every practice, every pair of organisations, on the same local test patients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from wardround.classifiers.exchange import load_classifier
from wardround.classifiers.local_fit import fit_classifier, local_preparation
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.practice_gaps.differences import Difference, draws_needed, gap_verdict, paired_difference
from wardround.practice_gaps.scores import METRICS, NAMES, score_entropy
from wardround.queries.columns import as_numbers, as_text, suggest_name
from wardround.runs.explain.gaps_result import GapDifference, GapsResult, OwnScore, PracticeGap, StopGap
from wardround.runs.folder import RunFolder
from wardround.selection.evaluation import holm
from wardround.selection.settings import SelectionSettings
from wardround.study.file import Study
from wardround.study.sections.explain import ExplainSection, GapsSection
from wardround.workflows.explain.choices import choose_for
from wardround.workflows.explain.rows import ExplainRows, SiteParts, read_table, split_rows
from wardround.workflows.explain.senders import SentClassifier, collect_classifiers, points_of

Values = np.ndarray[Any, Any]
LONG, SHORT = "longer", "not longer"
EVERYBODY = "all patients"


@dataclass(frozen=True)
class GapsPlan:
    """A study that was checked: the rows of every practice."""

    study: Study
    said: GapsSection
    practices: Mapping[str, Table]
    organisations: tuple[str, ...]
    left_out: Mapping[str, str]
    question: str


@dataclass(frozen=True)
class ComparedPractice:
    """One practice with its rows, the organisations' models, and a seed of its own."""

    name: str
    rows: ExplainRows
    sent: Mapping[str, SentClassifier]
    seed: int


def check_gaps(study: Study) -> GapsPlan:
    """Read the rows and divide them by practice; refused where nothing can be compared."""
    said = study.gaps or GapsSection()
    if said.metric not in METRICS:
        raise Refusal(
            f"there is no metric '{said.metric}' for gaps", where="[gaps]", remedy=f"choose one of {', '.join(METRICS)}"
        )
    table = read_table(study)
    first = next(iter(table.sites.values()))
    if said.practice is not None and said.practice not in first.columns:
        raise Refusal(
            f"column {said.practice!r}, which should name the practice, is missing; "
            f"{suggest_name(said.practice, map(str, first.columns))}",
            where="[gaps] practice",
            remedy="correct the name",
        )
    organisations = chosen_organisations(table, said)
    table = replace(table, sites={name: table.sites[name] for name in organisations})
    parts, left_out = practices_of(table, said)
    if not parts:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise Refusal(
            "no practice has enough patients at two organisations", where=reasons[:300], remedy="lower fewest in [gaps]"
        )
    what = f"{table.target} longer than the mean of its practice" if said.long_stay else table.target
    return GapsPlan(study, said, parts, organisations, left_out, what)


def chosen_organisations(table: Table, said: GapsSection) -> tuple[str, ...]:
    for name in said.organisations:
        if name not in table.sites:
            raise Refusal(
                f"there is no organisation called '{name}'; {suggest_name(name, table.sites)}",
                where="[gaps] organisations",
                remedy="correct the name",
            )
    if said.organisations:
        return tuple(dict.fromkeys(said.organisations))
    largest = sorted(table.sites, key=lambda name: -len(table.sites[name]))[: said.most_organisations]
    return tuple(name for name in table.sites if name in largest)


def practices_of(table: Table, said: GapsSection) -> tuple[dict[str, Table], dict[str, str]]:
    """The table of every practice that at least two organisations have enough patients of."""
    if said.practice is None:
        names = [EVERYBODY]
    else:
        texts = pd.concat([pd.Series(as_text(frame[said.practice])) for frame in table.sites.values()])
        names = [str(name) for name in texts.value_counts().index]
    parts: dict[str, Table] = {}
    left_out: dict[str, str] = {}
    for name in names:
        sites = {site: practice_rows(frame, said, name) for site, frame in table.sites.items()}
        enough = {site: frame for site, frame in sites.items() if len(frame) >= said.fewest}
        if len(enough) < 2:
            left_out[name] = f"fewer than two organisations have {said.fewest} patients"
            continue
        own = replace(table, sites=enough, groups=tuple(one for one in table.groups if one != said.practice))
        parts[name] = binarised(own) if said.long_stay else own
    return parts, left_out


def practice_rows(frame: pd.DataFrame, said: GapsSection, name: str) -> pd.DataFrame:
    if said.practice is None:
        return frame
    return frame[as_text(frame[said.practice]) == name].drop(columns=said.practice).reset_index(drop=True)


def binarised(table: Table) -> Table:
    """Whether a stay is longer than the mean of all organisations, which they can add up without telling a stay."""
    target = table.target
    values = np.concatenate([as_numbers(frame[target]) for frame in table.sites.values()])
    mean = float(np.nanmean(values))

    def labels(frame: pd.DataFrame) -> pd.DataFrame:
        numbers = as_numbers(frame[target])
        words = np.where(numbers > mean, LONG, SHORT).astype(object)
        words[np.isnan(numbers)] = None
        return frame.assign(**{target: words})

    sites = {name: labels(frame) for name, frame in table.sites.items()}
    return replace(table, sites=sites, task="classification", positive=LONG)


def run_gaps(plan: GapsPlan, folder: RunFolder, say: Callable[[str], None] = lambda words: None) -> GapsResult:
    """Train, compare, control for size, and try the stop-gap; writes the result."""
    study, said = plan.study, plan.said
    explain = ExplainSection(classifier=said.classifier, points=["sensitivity=0.9"])
    compared: list[ComparedPractice] = []
    left_out = dict(plan.left_out)
    fingerprint = ""
    for number, (name, table) in enumerate(plan.practices.items()):
        say(f"{name}: training")
        rows = split_rows(study, table, study.study.seed)
        fingerprint += rows.fingerprint
        try:
            sent, absent = collect_classifiers(study, explain, rows, study.study.seed)
        except Refusal as refusal:
            left_out[name] = str(refusal)
            continue
        left_out |= {f"{name} at {site}": why for site, why in absent.items()}
        compared.append(ComparedPractice(name, rows, sent, study.study.seed + 1000 * number))
    if not compared:
        raise Refusal(
            "no practice could be compared",
            where="; ".join(left_out.values())[:300],
            remedy="see to what is said there",
        )
    manifest = folder.begin(study.model_dump(mode="json"), fingerprint, kind="gaps", resume=False)
    pairs = [(one, a, b) for one in compared for a in one.sent for b in one.sent if a != b]
    level = said.level / len(pairs)
    found = [measured(plan, *pair, level, len(pairs), say) for pair in pairs]
    corrected = holm([entropy.p_value for *_, entropy in found])
    gaps = [
        with_size(plan, pair, gap.model_copy(update={"holm_p": p_value}), level, len(pairs), say)
        for pair, (gap, *_), p_value in zip(pairs, found, corrected, strict=True)
    ]
    stars = [at for at, gap in enumerate(gaps) if (gap.sized_verdict or gap.verdict) == "gap"]
    for at in stars:
        say(f"{gaps[at].practice}: stop-gap at {gaps[at].organisation}")
        gaps[at] = gaps[at].model_copy(update={"stop_gap": stop_gap(*pairs[at], explain, said.level / len(stars))})
    result = GapsResult(
        study=study.study.name,
        kind="gaps",
        question=plan.question,
        metric=NAMES[said.metric],
        settings=said.model_dump(mode="json", exclude_none=True),
        organisations=plan.organisations,
        practices=tuple(one.name for one in compared),
        left_out=left_out,
        own=tuple(own_score(plan, one, site) for one in compared for site in one.sent),
        gaps=tuple(gaps),
        words=tuple(gap_words(gaps)),
        notes=tuple(dict.fromkeys(note for one in compared for note in one.rows.notes)),
    )
    folder.write_result(result)
    folder.finish(manifest)
    return result


def parts_of(one: ComparedPractice, site: str) -> SiteParts:
    return next(found for found in one.rows.sites if found.name == site)


def measured(
    plan: GapsPlan, one: ComparedPractice, here: str, there: str, level: float, many: int, say: Callable[[str], None]
) -> tuple[PracticeGap, Difference, Difference]:
    """The two differences of one pair, on the test patients of `here`."""
    say(f"{one.name}: {here} against {there}")
    site = parts_of(one, here)
    local, other = (one.sent[name].loaded.scores(site.test.frame) for name in (here, there))
    performance, entropy = differences(plan, [(local, other)], site.test.outcome, level, many, one.seed)
    ones = np.ones((1, len(local)))
    metric = METRICS[plan.said.metric]
    scores = [float(metric(scores, site.test.outcome, ones)[0]) for scores in (local, other)]
    gap = PracticeGap(
        practice=one.name,
        organisation=here,
        other=there,
        train_rows=len(site.train.outcome),
        test_rows=len(site.test.outcome),
        other_train_rows=len(parts_of(one, there).train.outcome),
        local_score=_known(scores[0]),
        other_score=_known(scores[1]),
        performance=told(performance),
        entropy=told(entropy),
        verdict=gap_verdict(performance, entropy, float(score_entropy(other, ones)[0])),
        holm_p=None,
    )
    return gap, performance, entropy


def differences(
    plan: GapsPlan,
    pairs: list[tuple[Values, Values]],
    outcome: Values,
    level: float,
    many: int,
    seed: int,
) -> tuple[Difference, Difference]:
    draws = draws_needed(plan.said.resamples, plan.said.level, many)
    measures = (METRICS[plan.said.metric], lambda scores, _, counts: score_entropy(scores, counts))
    found = [
        paired_difference(measure, pairs, outcome, np.random.default_rng((seed, place)), resamples=draws, level=level)
        for place, measure in enumerate(measures)
    ]
    return found[0], found[1]


def with_size(
    plan: GapsPlan,
    pair: tuple[ComparedPractice, str, str],
    gap: PracticeGap,
    level: float,
    many: int,
    say: Callable[[str], None],
) -> PracticeGap:
    """The same with models of the larger organisation trained on as many patients as the smaller one has."""
    one, here, there = pair
    sizes = {name: len(parts_of(one, name).train.outcome) for name in (here, there)}
    larger = here if sizes[here] > sizes[there] else there
    if not plan.said.subsamples or sizes[here] == sizes[there]:
        return gap
    say(f"{one.name}: {here} against {there}, at equal size")
    site = parts_of(one, here)
    fixed = one.sent[there if larger == here else here].loaded.scores(site.test.frame)
    pairs = []
    for number in range(plan.said.subsamples):
        rng = np.random.default_rng((one.seed, 0x5AB, number))
        scores = subsampled_scores(plan, one, larger, min(sizes.values()), rng, number, site)
        if scores is not None:
            pairs.append((scores, fixed) if larger == here else (fixed, scores))
    if not pairs:
        return gap
    performance, entropy = differences(plan, pairs, site.test.outcome, level, many, one.seed + 1)
    ones = np.ones((1, len(site.test.outcome)))
    other = float(np.mean([score_entropy(scores, ones)[0] for _, scores in pairs]))
    return gap.model_copy(
        update={
            "sized_performance": told(performance),
            "sized_entropy": told(entropy),
            "sized_verdict": gap_verdict(performance, entropy, other),
        }
    )


def subsampled_scores(
    plan: GapsPlan,
    one: ComparedPractice,
    larger: str,
    size: int,
    rng: np.random.Generator,
    number: int,
    site: SiteParts,
) -> Values | None:
    train = parts_of(one, larger).train
    rows = np.sort(rng.choice(len(train.outcome), size, replace=False))
    frame = train.frame.iloc[rows].reset_index(drop=True)
    asked = one.rows.asked
    kind = "ridge" if plan.said.classifier == "study" else plan.said.classifier
    try:
        preparation = local_preparation(larger, frame, asked)
        content = fit_classifier(
            larger, kind, frame, train.outcome[rows], train.patients[rows], asked, preparation, seed=number
        )
    except Refusal:
        return None
    return load_classifier(content, asked, source=larger).scores(site.test.frame)


def stop_gap(one: ComparedPractice, here: str, there: str, explain: ExplainSection, level: float) -> StopGap | None:
    """Classifier selection by a competence threshold, with the other organisation's model alone."""
    site = parts_of(one, here)
    settings = SelectionSettings(points=points_of(explain), k=None, k_grid=(2, 7, 15, 50, 100), prune=False)
    try:
        chosen = choose_for(site, {name: one.sent[name] for name in (here, there)}, settings, one.seed)
    except Refusal:
        return None
    best = chosen.choice.cells[0].strategies["threshold"]
    done, used = best.test, best.corrected <= level
    return StopGap(
        train_p=best.corrected,
        rows=done.all_rows,
        handled=done.rows,
        right=done.flips.right,
        wrong=done.flips.wrong,
        success=done.success.value,
        low=done.success.low,
        high=done.success.high,
        test_p=done.by_patient,
        used=used,
    )


def own_score(plan: GapsPlan, one: ComparedPractice, name: str) -> OwnScore:
    """A model at home, with a plain 95 % bootstrap interval."""
    site = parts_of(one, name)
    scores, outcome = one.sent[name].loaded.scores(site.test.frame), site.test.outcome
    metric = METRICS[plan.said.metric]
    counts = np.random.default_rng((one.seed, 7)).multinomial(
        len(outcome), np.full(len(outcome), 1 / len(outcome)), plan.said.resamples
    )
    draws = metric(scores, outcome, counts.astype(float))
    draws = draws[np.isfinite(draws)]
    value = float(metric(scores, outcome, np.ones((1, len(outcome))))[0])
    low, high = np.quantile(draws, [0.025, 0.975]) if len(draws) else (np.nan, np.nan)
    return OwnScore(
        practice=one.name,
        organisation=name,
        rows=len(outcome),
        value=_known(value),
        low=_known(float(low)),
        high=_known(float(high)),
    )


def told(difference: Difference) -> GapDifference:
    return GapDifference(value=_known(difference.value), low=_known(difference.low), high=_known(difference.high))


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def gap_words(gaps: list[PracticeGap]) -> list[str]:
    """The answer in sentences."""
    stars = [gap for gap in gaps if (gap.sized_verdict or gap.verdict) == "gap"]
    before = sum(gap.verdict == "gap" for gap in gaps)
    said = [
        f"{len(stars)} of {len(gaps)} comparisons suggest a practice gap: there the other organisation's model is "
        "better, or as good and more consistent, on the same patients."
        if stars
        else f"None of {len(gaps)} comparisons suggests a practice gap."
    ]
    if before != len(stars):
        said.append(f"Before controlling for the number of patients there were {before}.")
    for gap in stars:
        stop = gap.stop_gap
        bridge = "no stop-gap could be tried"
        if stop is not None:
            bridge = (
                f"as a stop-gap {gap.other}'s model would decide for {stop.handled:,} of {stop.rows:,} patients, and "
                f"{stop.right} of {(stop.right or 0) + (stop.wrong or 0)} changed decisions were right"
                if stop.used
                else "the stop-gap declines: keep the own model meanwhile"
            )
        said.append(f"{gap.practice}: {gap.organisation} could learn from {gap.other}; {bridge}.")
    return said
