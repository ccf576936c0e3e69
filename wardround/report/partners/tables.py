"""The tables about partners: who was taken and why, all scores, agreement, matrices, differences, shares, feedback."""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.html.markup import Html, bullets, details, join, paragraph, plain, safe, table
from wardround.report.partners import text as words
from wardround.report.partners.answer import AdviceView, Partnership, SimilarityView, difference_text
from wardround.report.partners.charts import with_error
from wardround.report.run.summary import NAMED
from wardround.report.run.tables import OPEN
from wardround.runs.partners_result import SiteComparison, TrainingShare

SHORT = 12
"""Hospitals up to which all verdicts stand open."""
CELLS = 10_000
"""Numbers above which a matrix is left to result.json."""


def tag(asked: Partnership, site: str) -> Html:
    standing = asked.status(site)
    return Html(f'<span class="tag{" taken" if standing == "partner" else ""}">{standing}</span>')


def verdicts(asked: Partnership) -> Html:
    """Every hospital: taken or not, its score, and why in words; of many, the chosen first and the rest folded."""
    if len(asked.candidates) <= SHORT:
        return verdict_table(asked, asked.candidates)
    rest = [site for site in asked.candidates if site not in asked.partners]
    return join([verdict_table(asked, asked.partners), details(f"{len(rest):,} others", verdict_table(asked, rest))])


def verdict_table(asked: Partnership, sites: Sequence[str]) -> Html:
    if not sites:
        return Html("")
    rows = [verdict_row(asked, site) for site in sites]
    label = asked.measures[0].label if asked.measures else "score"
    error = " ± standard error" if asked.scores else ""
    columns = [Html("Hospital"), Html("Verdict"), Html(f"Score{error}"), Html("Why")]
    return table(
        f"Who was chosen, and why. Scores by: {plain(label)}; higher is better", columns, rows, kind="verdicts"
    )


def verdict_row(asked: Partnership, site: str) -> list[Html]:
    score = asked.scores.get(site)
    why = asked.reasons.get(site) or asked.main_difference(site)
    shown = safe(with_error(score)) if score else Html("none")
    return [safe(site), tag(asked, site), shown, safe(why) if why else Html("")]


def scores(asked: Partnership) -> Html:
    """All ways of judging side by side."""
    if len(asked.measures) < 2:
        return Html("")
    sites = [site for site in asked.candidates if any(site in judged.scores for judged in asked.measures)]
    if not sites:
        return Html("")
    columns = [Html("Hospital"), *(safe(judged.label) for judged in asked.measures)]
    rows = [
        [
            safe(site),
            *(safe(with_error(own)) if (own := judged.scores.get(site)) else Html("none") for judged in asked.measures),
        ]
        for site in sites
    ]
    cuts = ["none" if judged.cut is None else numbers.score(judged.cut) for judged in asked.measures]
    rows.append([Html("Threshold: a score above it speaks for a partner"), *(safe(cut) for cut in cuts)])
    return details("All scores, with their standard errors", table("Scores; higher is better in all", columns, rows))


def agreement(asked: Partnership) -> Html:
    if not asked.agreement:
        return Html("")
    rows = []
    for own in asked.agreement:
        value = "not defined" if own.rank_correlation is None else numbers.score(own.rank_correlation)
        said = words.agreement_text(asked, own)
        note = Html(f"{said}. {safe(own.note)}") if own.note else said
        rows.append(
            [
                safe(asked.label(own.measure)),
                safe(asked.label(own.against)),
                safe(value),
                safe(numbers.count(own.sites)),
                note,
            ]
        )
    columns = [Html(c) for c in ("Measure", "Compared with", "Rank correlation", "Hospitals", "In words")]
    return table("1 is the same order of hospitals, 0 no relation, −1 the opposite order", columns, rows)


def matrix(own: SimilarityView) -> Html:
    if len(own.sites) ** 2 > CELLS:
        return paragraph(Html(f"The numbers of {len(own.sites):,} hospitals are in <code>result.json</code>."))
    rows = [
        [safe(site), *(Html("") if x is None else safe(numbers.score(x)) for x in values)]
        for site, values in zip(own.sites, own.values, strict=True)
    ]
    caption = f"{plain(own.label)}: " + (
        f"{plain(own.rows)} (rows), {plain(own.columns)} (columns)" if own.rows and own.columns else "all pairs"
    )
    return details(f"{plain(own.label)}: the numbers", table(caption, [Html("Hospital"), *map(safe, own.sites)], rows))


def pairs(asked: Partnership) -> Html:
    """Each hospital's patients beside those of the asking one, the chosen first."""
    order = {site: index for index, site in enumerate(asked.candidates)}
    ranked = sorted(asked.pairs, key=lambda pair: order.get(pair.site, len(order)))
    many = len(ranked) > NAMED
    return join(pair_details(pair) if many else pair_section(asked, pair) for pair in ranked)


def pair_section(asked: Partnership, pair: SiteComparison) -> Html:
    return join([Html(f"<h3>{safe(pair.site)} {tag(asked, pair.site)}</h3>"), pair_words(pair)])


def pair_details(pair: SiteComparison) -> Html:
    sure = sum(one.beyond_chance for one in pair.features)
    return details(
        f"{plain(pair.site)}: {sure} feature{' differs' if sure == 1 else 's differ'} beyond chance", pair_words(pair)
    )


def pair_words(pair: SiteComparison) -> Html:
    sure = sorted((one for one in pair.features if one.beyond_chance), key=lambda one: -(one.distance or 0.0))
    rest = [one for one in pair.features if not one.beyond_chance]
    parts = [paragraph(safe(pair.words))] if pair.words else []
    if sure:
        parts.append(bullets(safe(difference_text(one)) for one in sure))
    elif not pair.words:
        parts.append(paragraph(Html("No difference is larger than chance would explain.")))
    if rest:
        parts.append(
            details(
                f"{len(rest)} further feature{'' if len(rest) == 1 else 's'}, which chance may explain",
                bullets(safe(difference_text(one)) for one in rest),
            )
        )
    return join(parts)


def dilution(asked: Partnership) -> Html:
    if not asked.dilution:
        return Html("")
    weighted = any(share.weight_share is not None for share in asked.dilution)
    columns = ["Hospital", "Training patients", "Share of them", "Share of the weight", "Its own limit", "Verdict"]
    rows = [share_row(share) for share in asked.dilution]
    if not weighted:
        del columns[3]
        for row in rows:
            del row[3]
    whole = table("Shares of the hospitals that would train together", [Html(c) for c in columns], rows)
    return whole if len(rows) <= OPEN else details(f"Shares of all {len(rows):,} hospitals", whole)


def share_row(share: TrainingShare) -> list[Html]:
    limit = "none" if share.limit is None or share.limit >= 1 else numbers.share(share.limit)
    verdict = "<strong>over its limit</strong>" if share.over else "within its limit" if limit != "none" else "no limit"
    cells = [
        numbers.count(share.rows),
        *("unknown" if x is None else numbers.share(x) for x in (share.row_share, share.weight_share)),
        limit,
    ]
    return [safe(share.site), *map(safe, cells), Html(verdict)]


def feedback(asked: Partnership) -> Html:
    return join(feedback_of(own) for own in asked.feedback)


def feedback_of(own: AdviceView) -> Html:
    known = []
    if own.place is not None:
        known.append(f"place {own.place}" + (f" of {own.of}" if own.of is not None else ""))
    if own.chosen is not None:
        known.append("chosen" if own.chosen else "not chosen")
    title = plain(own.site) + (f" ({', '.join(known)})" if known else "")
    parts = [bullets(safe(word) for word in own.words)] if own.words else []
    for heading, remarks in own.remarks.items():
        parts += [Html(f"<h3>{safe(heading)}</h3>"), bullets(safe(text) for text in remarks)]
    return details(title, *(parts or [paragraph(Html("There is nothing to report."))]))
