"""What each site sends: its classifier as a file, with the thresholds of its operating points; or why it sends none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from wardround.classifiers.exchange import LoadedClassifier, load_classifier
from wardround.classifiers.kinds import LABELS
from wardround.classifiers.local_fit import fit_classifier, local_preparation
from wardround.classifiers.onnx_check import refuse_large
from wardround.classifiers.onnx_file import with_thresholds
from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.data.preparation import Preparation
from wardround.selection.operating_points import PointOfUse, operating_point, risk_threshold
from wardround.study.file import Study
from wardround.study.sections.explain import ExplainSection
from wardround.workflows.explain.rows import ExplainRows, SiteParts

Values = np.ndarray[Any, Any]


class SentClassifier(NamedTuple):
    """A site's classifier as the others get it; `preparation` is the site's own and stays there, for distances."""

    site: str
    kind: str
    content: bytes
    loaded: LoadedClassifier
    preparation: Preparation
    roc_auc: float | None
    rows: int


def points_of(said: ExplainSection) -> tuple[PointOfUse, ...]:
    """
    >>> [point.name for point in points_of(ExplainSection(points=["sensitivity=0.9", "youden"]))]
    ['sensitivity 0.9', 'youden']
    """
    made = []
    for one in said.points:
        name, _, value = one.partition("=")
        made.append(operating_point(name, float(value)) if value else operating_point(name))
    return tuple(made)


def collect_classifiers(
    study: Study, said: ExplainSection, rows: ExplainRows, seed: int
) -> tuple[dict[str, SentClassifier], dict[str, str]]:
    """By site what it sends, and why others send none; refused where fewer than two send one."""
    names = [site.name for site in rows.sites]
    for name in (*said.classifiers, *said.files):
        if name not in names:
            raise Refusal(
                f"there is no site called '{name}'", where="[explain]", remedy=f"the sites are {', '.join(names)}"
            )
    own = [name for name in names if name not in said.files and said.classifiers.get(name, said.classifier) == "study"]
    trained: Mapping[str, bytes] = {}
    if own:
        from wardround.workflows.explain.study_models import study_classifiers

        trained = study_classifiers(study, seed, own)
    sent: dict[str, SentClassifier] = {}
    absent: dict[str, str] = {}
    points = points_of(said)
    for site in rows.sites:
        try:
            sent[site.name] = classifier_of(site, said, rows, points, trained.get(site.name), seed, cell(study))
        except Refusal as refusal:
            absent[site.name] = str(refusal)
    if len(sent) < 2:
        reasons = " ".join(f"{name}: {why}" for name, why in absent.items())
        raise Refusal(
            f"only {counted(len(sent), 'site')} could send a classifier, and an exchange needs two",
            where=reasons,
            remedy="see to what is said of these sites",
        )
    return sent, absent


def cell(study: Study) -> int:
    return study.data.preparation.smallest_cell


def classifier_of(
    site: SiteParts,
    said: ExplainSection,
    rows: ExplainRows,
    points: Sequence[PointOfUse],
    trained: bytes | None,
    seed: int,
    smallest_cell: int,
) -> SentClassifier:
    """Fit or read it, choose its thresholds on the site's own validation patients, and check it as the others will."""
    preparation = local_preparation(site.name, site.train.frame, rows.asked, smallest_cell=smallest_cell)
    if site.name in said.files:
        kind, content = "own file", read_file(Path(said.files[site.name]), site.name)
    else:
        kind = said.classifiers.get(site.name, said.classifier)
        content = trained or fit_classifier(
            site.name,
            kind,
            site.train.frame,
            site.train.outcome,
            site.train.patients,
            rows.asked,
            preparation,
            seed=seed,
        )
    loaded = load_classifier(content, rows.asked, source=site.name)
    part = site.validation
    risk = loaded.scores(part.frame)
    thresholds = {one.name: risk_threshold(one, risk, part.outcome, where=f"site {site.name}") for one in points}
    content = with_thresholds(content, thresholds)
    loaded = loaded._replace(thresholds=thresholds)
    return SentClassifier(
        site.name,
        LABELS.get(kind, kind),
        content,
        loaded,
        preparation,
        area(loaded.scores(site.test.frame), site.test.outcome),
        len(site.train.outcome),
    )


def area(scores: Values, outcome: Values) -> float | None:
    """ROC-AUC, none where all outcomes are the same."""
    return float(roc_auc_score(outcome, scores)) if len(np.unique(outcome)) == 2 else None


def read_file(path: Path, site: str) -> bytes:
    where = f"classifier of {site}, {path}"
    try:
        refuse_large(path.stat().st_size, where)
        return path.read_bytes()
    except FileNotFoundError:
        raise Refusal("there is no such file", where=where, remedy="correct [explain.files]") from None
    except OSError as error:
        raise Refusal(f"the file cannot be read: {error.strerror}", where=where, remedy="check its rights") from None
