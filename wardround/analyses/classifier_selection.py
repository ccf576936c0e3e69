"""Classifier selection: sites exchange classifiers once, and each chooses at home for whom another's decides.

Caldas, "Collaborative learning by leveraging siloed data", 2022, chapter 3. In the first exchange a site sends its own
classifier, an ONNX file in a room of fixed size; in the second it gets all of them, under names that do not tell whose
they are, chooses with its own validation patients and judges the choice with its test patients. It keeps the rules and
the classifiers they name, and tells only counts in whole cells. A classifier can tell something about the patients it
was trained on: `random_forest` and `gradient_boosting` more than `ridge`.
"""

from hashlib import sha256
from typing import Any

import numpy as np

from wardround.classifiers.exchange import AskedTask
from wardround.classifiers.kinds import ClassifierKind
from wardround.classifiers.site_choices import STRATEGIES, SiteQuestion, choose_at_home, counts_of, own_file
from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.queries.cells import in_cells
from wardround.selection.operating_points import Keeps, operating_point
from wardround.selection.settings import SelectionSettings

LABEL = "Classifier selection"
COUNTS = ("validation rows", "test rows", "handed over", "became right", "became wrong", "passes", "confirmed")
TERMS = Terms(
    "first your own classifier of {outcome} ({classifier}, trained on 40 % of your patients, at most {room} bytes),"
    " which all other sites get; then, of the choice that you make among all classifiers at home, how many of your"
    " patients it concerns and how many decisions it changed rightly and wrongly, in cells of {smallest_cell}",
    lambda of: max(
        int(of.settings.get("room", 65_536)) + 1, len(of.settings.get("points", (0, 0))) * len(STRATEGIES) * len(COUNTS)
    ),
    rows="table",
)
EMPTY = 0.0


@recorded("analysis", TERMS)
def classifier_selection(
    *,
    outcome: str,
    positive: str,
    columns: tuple[str, ...],
    patient: str = "",
    classifier: ClassifierKind = "ridge",
    points: tuple[str, ...] = ("sensitivity=0.9", "specificity=0.9"),
    keeps: Keeps = "local",
    k: int = 0,
    level: float = 0.05,
    shuffles: Count = 99,
    hide_sources: bool = True,
    seed: int = 0,
    room: Count = 65_536,
    smallest_cell: Count = 1,
) -> Analysis:
    """For which patients of each site another site's classifier knows more; rules stay at the site (`k` 0: chosen)."""
    question = SiteQuestion(
        classifier=classifier,
        patient=patient,
        settings=SelectionSettings(
            points=tuple(_point(one) for one in points), keeps=keeps, k=k or None, level=level, shuffles=shuffles
        ),
        seed=seed,
        room=room,
        smallest_cell=smallest_cell,
    )
    chosen: dict[str, Any] = {}
    """What each site found in this exchange (in one process there may be several); its rules are written from it."""

    def begin(agreed: Agreed) -> Tree:
        if agreed.columns[outcome].kind != "category" or positive not in agreed.columns[outcome].levels:
            raise Refusal(
                f"{outcome!r} has no outcome {positive!r}",
                where="[analysis] positive",
                remedy=f"name one of {', '.join(agreed.columns[outcome].levels) or 'its words'}",
            )
        if len(agreed.columns[outcome].levels) != 2:
            raise Refusal(
                f"{outcome!r} has {len(agreed.columns[outcome].levels)} outcomes, and classifiers are chosen for two",
                where="[analysis] outcome",
                remedy="recode it into two",
            )
        if patient and agreed.columns[patient].kind != "number":
            raise Refusal(
                f"the patient's number {patient!r} holds words",
                where="[analysis] patient",
                remedy="use a column of numbers, or leave it out",
            )
        if len(agreed.sites) < 2:
            raise Refusal("an exchange needs two sites", remedy="invite another")
        return {"sites": agreed.sites}

    def message(state: Tree) -> Message | None:
        if "counts" in state:
            return None
        if "files" not in state:
            return Message({"send": np.zeros(())})
        return Message({f"file_{place:04d}": file for place, file in enumerate(state["files"])})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        task = AskedTask(
            outcome,
            agreed.columns[outcome].levels,
            positive,
            {name: agreed.columns[name].kind for name in columns},
        )
        if "send" in asked.arrays:
            return Message({"file": own_file(question, task, site)})
        files = [np.asarray(asked.arrays[name]) for name in sorted(asked.arrays)]
        found = choose_at_home(question, task, site, files)
        chosen[site.name] = found
        counts = counts_of(question, found)
        # Flags are no counts; every number of rows is told in whole cells.
        flags = counts[..., 5:]
        return Message({"counts": np.concatenate([in_cells(counts[..., :5], smallest_cell), flags], axis=-1)})

    def keep(agreed: Agreed, asked: Message, site: Site) -> dict[str, bytes]:
        made = chosen.pop(site.name, None)
        return {} if made is None else made.files()

    def step(state: Tree, told: Message) -> Tree:
        if "files" not in state:
            files = {site: np.asarray(told.arrays[site]["file"]) for site in state["sites"] if site in told.arrays}
            sent = [file for file in files.values() if file[0] > EMPTY]
            if len(sent) < 2:
                raise Refusal(
                    f"only {len(sent)} of {len(files)} sites could send a classifier, and an exchange needs two",
                    remedy="have sites with enough patients of both outcomes, or more room for a classifier",
                )
            # By their bytes, which say nothing of the sender's place: a draw by the study's seed could be drawn again.
            ordered = sorted(sent, key=lambda file: sha256(file.tobytes()).digest()) if hide_sources else sent
            return {**state, "files": ordered, "silent": len(files) - len(sent)}
        counts = {site: np.asarray(told.arrays[site]["counts"]) for site in state["sites"] if site in told.arrays}
        return {**state, "counts": counts}

    def report(state: Tree) -> Report:
        return findings(state["counts"], points, int(state["silent"])).report()

    wanted = tuple(dict.fromkeys((*columns, outcome, *([patient] if patient else []))))
    return Analysis(wanted, begin, message, ask, step, report, most=2, sums=False, keep=keep)


def _point(text: str) -> Any:
    name, _, value = text.partition("=")
    try:
        if name in ("sensitivity", "specificity", "threshold") and 0 < float(value) < 1:
            return operating_point(name, float(value))
    except ValueError:
        pass
    if text == "youden":
        return operating_point("youden")
    raise Refusal(
        f"{text!r} is no operating point", where="[analysis] points", remedy='say "sensitivity=0.9", or "youden"'
    )


def findings(counts: dict[str, Any], points: tuple[str, ...], silent: int) -> Findings:
    """Who gains, in sentences; the counts in a table."""
    rows: list[list[str | int]] = []
    words: list[str] = []
    for site, told in counts.items():
        for at, point in enumerate(points):
            best = None
            for place, strategy in enumerate(STRATEGIES):
                _, test, handled, right, wrong, passes, confirmed = told[at, place]
                flags = ("yes" if passes else "no", "yes" if confirmed else "no")
                rows.append([site, point, strategy, int(test), int(handled), int(right), int(wrong), *flags])
                if confirmed and best is None:
                    best = (strategy, handled, test, right, wrong)
            if best is None:
                words.append(f"{site}, {point}: no benefit; it keeps its own model for everybody.")
            else:
                strategy, handled, test, right, wrong = best
                words.append(
                    f"{site}, {point}: gains by {strategy}: of about {int(test):,} test patients another site's model"
                    f" decides for about {int(handled):,}; {int(right):,} decisions became right, {int(wrong):,} wrong."
                )
    if silent:
        words.append(f"{silent} of the sites sent no classifier.")
    columns = ["site", "operating point", "strategy", "test rows", "handed over", "became right", "became wrong"]
    table = FoundTable("choices", "What each site's choice did", [*columns, "passes", "confirmed"], rows)
    return Findings(words, [table], numbers={site: told.tolist() for site, told in counts.items()})
