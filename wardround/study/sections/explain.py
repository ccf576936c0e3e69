"""The tables [explain] and [gaps]: whose knowledge decides for which patients, and whose practice differs."""

import re
from typing import Literal

from pydantic import Field, model_validator

from wardround.study.sections.section import Section

POINT = re.compile(r"(sensitivity|specificity|threshold)=(0?\.\d+)|youden")
Kind = Literal["ridge", "random_forest", "gradient_boosting", "svm", "mlp", "study"]


class ExplainSection(Section):
    """How classifiers are made and exchanged, and how each site chooses among them."""

    classifier: Kind = "ridge"
    """What every site trains on its own patients; "study" is the study's [model], alone and with its [privacy];"""
    classifiers: dict[str, Kind] = Field(default_factory=dict)
    """and what single sites train instead, by site;"""
    files: dict[str, str] = Field(default_factory=dict)
    """or the ONNX file of a site's own classifier, by site."""
    points: list[str] = Field(default=["sensitivity=0.9", "specificity=0.9"], min_length=1)
    """Operating points: "sensitivity=0.9", "specificity=0.9", "threshold=0.3" or "youden"; the first decides."""
    keeps: Literal["local", "own"] = "local"
    """The threshold of another site's classifier: chosen on the local validation patients, or its own site's."""
    k: int | None = Field(default=None, ge=1)
    """Neighbours by whom competence is judged; without, chosen by `k_by`."""
    k_by: Literal["folds", "divergence"] = "folds"
    """By cross-validation, or where competence stops changing between two halves of the patients."""
    rules_from: Literal["patients", "neighbours"] = "patients"
    """Rules are looked for in each patient's own difference in loss, or in competence among its neighbours;"""
    rules_by: Literal["clearest", "bound"] = "clearest"
    """by the mean most clearly above 0 (few, wide rules), or the greatest lower bound on the mean (as printed)."""
    both_ways: bool = True
    """Look for rules in the printed way as well, and take those that validation patients favour."""
    pick: Literal["competence", "score"] = "competence"
    """Which of several other classifiers: the one most competent at the patient, or the one with the highest score."""
    features: int = Field(default=2, ge=1, le=2)
    """Columns in a rule at most."""
    least: float = Field(default=0.015, gt=0, lt=0.5)
    """Share of the validation patients that a rule concerns at least."""
    most_rules: int = Field(default=12, ge=1, le=50)
    """Rules that are looked for, at most."""
    level: float = Field(default=0.05, gt=0, lt=0.5)
    """Level of all tests."""
    prune: bool = True
    """Drop rules that shuffled patients would have given as well."""
    shuffles: int = Field(default=99, ge=19, le=10_000)
    """How often patients are shuffled for that."""
    gaps: bool = False
    """Rules may also say that a column is not recorded."""
    own_rows: Literal["left_out", "counted"] = "left_out"
    """Whether a validation patient is a neighbour of itself."""
    corrected: bool = True
    """Whether validation tests are corrected for the number of looks."""
    by_row: bool = True
    """Where [data] split_by names the patient: show a split by row beside it, as the literature does."""
    repeats: int = Field(default=1, ge=1, le=100)
    """Splits; the rules are those of the first, and the others say how often the same is found."""
    keep_neighbours: bool = False
    """Keep every site's validation patients in the run folder, prepared, where `predict` is to follow a threshold of
    competence: rows about patients, so not by default. Real sites keep their own at home."""
    hide_sources: bool = False
    """Give the sites names that do not tell whose a classifier is."""
    units: dict[str, str] = Field(default_factory=dict)
    """Units of columns, for the words of rules."""

    @model_validator(mode="after")
    def _known_points(self) -> "ExplainSection":
        for one in self.points:
            if not POINT.fullmatch(one):
                raise ValueError(f'"{one}" is no operating point; say "sensitivity=0.9", "threshold=0.3" or "youden"')
        return self


class GapsSection(Section):
    """For which practices and pairs of organisations the same decision is made more consistently elsewhere."""

    practice: str | None = None
    """The column whose values are the practices, such as a diagnosis group; without, all patients are one practice."""
    long_stay: bool = False
    """The target is a length of stay: predict whether it is longer than the mean of its practice over all sites."""
    organisations: list[str] = Field(default_factory=list)
    """The two or more sites to compare; by default those with the most patients, `most_organisations` of them."""
    most_organisations: int = Field(default=4, ge=2, le=20)
    """How many these are."""
    metric: str = "tnr_at_90_tpr"
    """tnr_at_90_tpr, roc_auc or accuracy."""
    classifier: Kind = "ridge"
    """What every organisation trains."""
    resamples: int = Field(default=1000, ge=100, le=100_000)
    """Of the bootstrap."""
    subsamples: int = Field(default=10, ge=0, le=100)
    """Trainings with as many patients as the smaller organisation has."""
    level: float = Field(default=0.05, gt=0, lt=0.5)
    """Of all comparisons together."""
    fewest: int = Field(default=60, ge=20)
    """Patients of a practice at an organisation, below which it is left out."""
