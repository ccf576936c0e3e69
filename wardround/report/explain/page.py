"""The page of `explain`: for each hospital the answer first, then its rules, then the evidence and how it was found."""

from collections.abc import Sequence

from wardround.core.text import counted
from wardround.report.explain.charts import flips_chart, split_chart
from wardround.report.explain.gaps_page import gaps_page
from wardround.report.explain.tables import auc_table, point_table, rule_table, split_table
from wardround.report.html.document import chart_figures, date_text, document, facts, notices, remark_list
from wardround.report.html.markup import Html, bullets, details, join, paragraph, plain, safe, section, table
from wardround.runs.explain.explain_result import ExplainResult, SiteAnswer
from wardround.runs.explain.gaps_result import GapsResult
from wardround.runs.fields import Json

VERDICTS = {"gain": "gains", "unconfirmed": "no benefit that holds", "none": "no benefit"}


def selection_page(result: ExplainResult | GapsResult, manifest: Json, remarks: Sequence[str] = ()) -> Html:
    """The page of `explain` or of `gaps`."""
    if isinstance(result, GapsResult):
        return gaps_page(result, manifest, remarks)
    return explain_page(result, manifest, remarks)


def explain_page(result: ExplainResult, manifest: Json, remarks: Sequence[str] = ()) -> Html:
    """The whole document."""
    parts = [
        notices(safe(one) for one in remarks),
        section("answer", "The answer", *answer(result)),
        *(section(f"site-{at}", f"{plain(one.site)}: whose model decides for whom", *site_parts(result, one, at))
          for at, one in enumerate(result.sites)),
        section("limits", "What this cannot tell", bullets(map(safe, limits(result))), remark_list(result.notes)),
        section("how", "How it was found", *how(result)),
    ]  # fmt: skip
    return document(result.study, subtitle(result, manifest), join(parts), manifest)


def subtitle(result: ExplainResult, manifest: Json) -> Html:
    words = [
        safe("For which patients does another hospital's model know more?"),
        safe(f"outcome: {plain(result.task.target)}"),
    ]
    if manifest.get("finished"):
        words.append(safe(f"finished {date_text(manifest['finished'])}"))
    return join(words, " · ")


def answer(result: ExplainResult) -> list[Html]:
    boxes = [(one.site, VERDICTS.get(one.verdict, one.verdict), gain_note(result, one)) for one in result.sites]
    lines = [paragraph(safe(one.headline), "answer" if one.verdict == "gain" else "lead") for one in result.sites]
    away = [f"{name} took no part: {why}" for name, why in result.absent.items()]
    return [*lines, facts(boxes), notices(map(safe, away))]


def gain_note(result: ExplainResult, one: SiteAnswer) -> str:
    if len(one.splits) < 2:
        return f"{one.test_rows or 0:,} test rows"
    main = [split for split in one.splits if split.by == one.splits[0].by]
    held = sum(split.confirmed for split in main)
    return f"confirmed in {held} of {counted(len(main), 'split')}"


def site_parts(result: ExplainResult, one: SiteAnswer, at: int) -> list[Html]:
    point = one.cells[0].point if one.cells else ""
    keeps = str(result.settings.get("keeps", "local"))
    cell = one.cell(point, keeps) or (one.cells[0] if one.cells else None)
    parts = [bullets(map(safe, one.sentences)) if one.sentences else Html("")]
    used = [rule for rule in one.rules if rule.used]
    if used:
        steps = [
            Html(f"{'If' if not place else 'Otherwise, if'} <strong>{safe(rule.words)}</strong>: "
                 f"{safe(rule.source)}'s model decides.")
            for place, rule in enumerate(used)
        ]  # fmt: skip
        steps.append(Html(f"Otherwise {safe(one.site)}'s own model decides."))
        parts += [paragraph(Html("The rules, as <code>wardround predict</code> follows them:")), bullets(steps)]
    elif one.verdict == "gain":
        parts.append(
            paragraph(
                Html(
                    "No short rule describes these patients; they are known by their nearest neighbours. "
                    "<code>wardround predict</code> follows this choice where the hospital's validation patients are "
                    "kept (at a real site, or with <code>keep_neighbours = true</code>), and keeps the own model where "
                    "they are not."
                )
            )
        )
    if used:
        parts.append(rule_table(one, used=True))
    if len(used) < len(one.rules):
        parts.append(details("Groups of patients that were found and are not followed", rule_table(one, used=False)))
    if cell is not None:
        parts += [chart_figures(f"flips-{at}", [flips_chart(one, cell)]), point_table(one, cell)]
        others = [other for other in one.cells if other is not cell]
        if others:
            parts.append(
                details(
                    "Other operating points, and the other way to give models a threshold",
                    *(point_table(one, other) for other in others),
                )
            )
    if len(one.splits) > 1:
        parts += [chart_figures(f"splits-{at}", [split_chart(one)]), split_table(one)]
    parts.append(auc_table(one))
    return parts


def limits(result: ExplainResult) -> list[str]:
    said = [
        "A model that is right more often for a group of patients need not come from better care: the other "
        "hospital may "
        "simply see more of such patients (see the shares here and there), or record them otherwise.",
        "A changed decision is counted as right when it equals the recorded outcome.",
    ]
    if result.split_by:
        said.append(
            f"No patient ({result.split_by}) is in two parts, and rows of a patient count together in tests and "
            f"intervals. "
            "A split by row, as the literature uses it, is shown beside it where several splits are listed: there rows "
            "of the same patient help to judge each other, and it promises too much."
        )
    else:
        said.append(
            "Every row counts as a patient of its own. Name the patient with split_by in [data] if some have several."
        )
    return said


def how(result: ExplainResult) -> list[Html]:
    rows = [
        [one.site, one.kind, f"{one.rows or 0:,}", f"{(one.bytes or 0) / 1024:,.0f} KB", _three(one.roc_auc)]
        for one in result.classifiers
    ]
    k = ", ".join(f"{one.site} {one.k}" for one in result.sites)
    level = float(result.settings.get("level", 0.05))
    return [
        paragraph(
            Html(
                "Each hospital trained a model on its own patients and sent it to the others, once. Each then "
                "judged all "
                "models on its own validation patients: around every patient, by the mean loss among the "
                "nearest others "
                "(competence). It looked for groups in which another model's loss is smaller, kept the choice that "
                "changed decisions for the better most clearly, and tried it on test patients that nobody had "
                "looked at. "
                f"Tests are at the level {level:g}, corrected for the number of looks and of strategies. "
                "Nothing about single patients left a hospital."
            )
        ),
        paragraph(safe(f"Neighbours by whom competence is judged: {k}.")),
        table("The models that were exchanged", ["hospital", "kind", "training rows", "size", "ROC-AUC at home"], rows),
    ]


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
