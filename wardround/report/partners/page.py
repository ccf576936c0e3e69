"""The page that answers "with whom should I train?": the answer first, then what it rests on, then what it cost."""

from wardround.report.html.document import chart_figures, date_text, document, facts, notices, remark_list
from wardround.report.html.markup import Html, bullets, join, paragraph, safe, section
from wardround.report.partners import charts as figures
from wardround.report.partners import tables as own_tables
from wardround.report.partners import text as words
from wardround.report.partners.answer import Partnership
from wardround.report.run import ground_truth, progress_charts, tables


def partners_page(asked: Partnership) -> Html:
    """The whole document."""
    return document(asked.run.name, subtitle(asked), content(asked), asked.run.manifest)


def subtitle(asked: Partnership) -> Html:
    who = Html(f"With whom should {safe(asked.asking)} train?" if asked.asking else "With whom to train")
    when = asked.run.manifest.get("finished")
    return join([who, Html(f"answered {safe(date_text(when))}")] if when else [who], " · ")


def content(asked: Partnership) -> Html:
    """The sections in the order in which a reader asks."""
    first, *further = asked.measures or (None,)
    patient_chart = chart_figures("patients", progress_charts.patients(asked.run))
    return join(
        [
            notices(safe(remark) for remark in asked.run.remarks),
            section(
                "answer", "The answer",
                paragraph(safe(words.headline(asked)), "answer"), paragraph(words.lead(asked), "lead"),
                facts(words.key_figures(asked)), chart_figures("gain", [figures.gain(asked)]), about_gain(asked),
                own_tables.verdicts(asked), paragraph(safe(asked.method)) if asked.method else Html(""),
            ),
            section("limits", "What this cannot tell", bullets(words.limits(asked)), remark_list(asked.run.notes)),
            section("truth", "Ground truth", ground_truth.truth_section(asked.run)),
            section(
                "scores", "How well each hospital fits", about_scores(asked),
                chart_figures("scores", [figures.scores(asked, first)] if first else []),
                chart_figures("further", [figures.scores(asked, judged, half=True) for judged in further]),
                meanings(asked), own_tables.scores(asked),
            ),
            section("agreement", "Do the measures agree?", about_agreement(asked), own_tables.agreement(asked)),
            section("pairs", "How their patients differ from yours", own_tables.pairs(asked)),
            section("similarity", "Which hospitals are alike", *similarity(asked)),
            section(
                "map", "Map of the hospitals",
                *([paragraph(words.map_text(asked)), chart_figures("map", [figures.places(asked)])]
                if len(asked.places) > 1 else []),
            ),
            section(
                "dilution", "How large each share would be", about_dilution(asked),
                chart_figures("dilution", [figures.dilution(asked)]), own_tables.dilution(asked),
            ),
            section("feedback", "What each hospital can learn from this", own_tables.feedback(asked)),
            section("patients", "Patients", patient_chart, tables.patients(asked.run)),
            section("cost", "Cost of this answer", words.cost(asked)),
            section("curious", "Technical details", tables.manifest(asked.run)),
        ]
    )  # fmt: skip


def about_gain(asked: Partnership) -> Html:
    meaning = words.metric_meaning(asked)
    return paragraph(meaning, "kind") if meaning and asked.gain.improvement.value is not None else Html("")


def about_scores(asked: Partnership) -> Html:
    if not asked.scores:
        return Html("")
    first = asked.measures[0]
    meaning = f"{safe(first.words)} " if first.words else ""
    return paragraph(
        Html(
            f"{meaning}Bars start at the threshold: a score to the right speaks for a partner, to the left "
            "against it. Blue bars with a tick are the chosen hospitals. Thin lines show two standard errors each way: "
            "where they cross the threshold, chance may have decided."
        )
    )


def meanings(asked: Partnership) -> Html:
    """What the further ways of judging mean."""
    told = [Html(f"<strong>{safe(own.label)}</strong>: {safe(own.words)}") for own in asked.measures[1:] if own.words]
    return bullets(told) if told else Html("")


def about_agreement(asked: Partnership) -> Html:
    if not asked.agreement:
        return Html("")
    return paragraph(
        Html(
            "Training again without a hospital shows most reliably what it contributes, but takes long. The quick "
            "measures are useful as far as they rank the hospitals in the same order."
        )
    )


def similarity(asked: Partnership) -> list[Html]:
    parts = []
    for index, own in enumerate(matrix for matrix in asked.matrices if len(matrix.sites) > 1):
        if own.words:
            parts.append(paragraph(safe(own.words)))
        parts += [chart_figures(f"similarity-{index}", [figures.matrix(asked, own)]), own_tables.matrix(own)]
    if parts:
        parts.insert(0, paragraph(Html("Darker cells hold larger numbers; grey cells were not measured.")))
    return parts


def about_dilution(asked: Partnership) -> Html:
    if not asked.dilution:
        return Html("")
    return paragraph(
        Html(
            "What a hospital contributes is diluted among the contributions of the others. Each hospital sees "
            "its share before training and may withdraw if the share is above its own limit."
        )
    )
