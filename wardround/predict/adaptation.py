"""A model adapted to one site: the map of its risks and the operating point, as a small file beside the model.

The file carries the digest of the model that it was made for and is refused for any other. The model stays as it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.special import expit, logit

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.evaluate.clinical.operating_point import OperatingRule, choose_threshold
from wardround.evaluate.rows import Numbers
from wardround.predict.operating_point import FlaggedPatients, count_patients, flagged_out_of_fold
from wardround.predict.recalibration import RiskMap, choose_map
from wardround.runs.file_names import adaptation_file
from wardround.runs.json_files import read_json, write_json
from wardround.runs.model_file import ModelFacts

FORMAT: Literal[1] = 1
FEWEST = 10
"""Patients of either outcome below which nothing can be fitted; of a quantity twice as many patients."""


class MapLoss(BaseModel):
    """What a map lost in cross-validation, and how far it is behind the best, with the standard error of that."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float
    behind: float
    error: float


class Adaptation(BaseModel):
    """What `wardround adapt` found for one site."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = FORMAT
    wardround: str = __version__
    model: str
    """The digest of the model."""
    site: str | None
    outcome: str
    """What is predicted, of two classes with the one that is looked for."""
    patients: int
    with_outcome: int | None
    """Of two classes, patients who had the one that is looked for."""
    risk_map: RiskMap
    losses: dict[str, MapLoss]
    """Log loss, of a quantity squared error, of every kind of map."""
    threshold: float | None = None
    """Of two classes, the adapted risk from which a patient is flagged."""
    rule: str = ""
    target: float | None = None
    """What the rule asks for: a share, or a threshold probability."""
    flagged: FlaggedPatients | None = None
    """Cross-validated."""

    def apply(self, predicted: Numbers, positive: int | None) -> Numbers:
        """Probabilities of shape (rows, 2) or values of shape (rows,), mapped; unchanged bits without a map."""
        if self.risk_map.kind == "none":
            return predicted
        if predicted.ndim == 1:
            return self.risk_map.apply(predicted)
        assert positive is not None
        risk = self.risk_map.apply(predicted[:, positive])
        pair = [1 - risk, risk] if positive == 1 else [risk, 1 - risk]
        return np.stack(pair, axis=1)

    def map_scores(self, scores: Numbers) -> Numbers:
        """Log-odds of the class that is looked for, or values, as the map changes them."""
        if not self.risk_map.log_odds:
            return self.risk_map.apply(scores)
        return np.asarray(logit(self.risk_map.apply(expit(scores))))


def adapt_risks(
    facts: ModelFacts, site: str | None, risk: Numbers, ill: Numbers, rule: OperatingRule | None, *, where: str
) -> Adaptation:
    """From the predicted risks of patients whose outcomes (0 or 1) are known."""
    with_outcome = int(ill.sum())
    fewest = min(with_outcome, len(ill) - with_outcome)
    if fewest < FEWEST:
        words = f"all {len(ill)} patients" if fewest == 0 else f"{fewest} of {len(ill)} patients"
        which = "the same outcome" if fewest == 0 else "the rarer outcome"
        raise Refusal(
            f"{words} whose outcome is known have {which}, too few to adapt the model",
            where=where,
            remedy=f"gather at least {FEWEST} patients with each outcome, better 100; until then use it as it is",
        )
    choice = choose_map(risk, ill)
    rule = rule or OperatingRule("threshold", facts.threshold)
    flagged = flagged_out_of_fold(rule, choice.chosen.kind, risk, ill, choice.folds)
    return Adaptation(
        model=facts.digest,
        site=site,
        outcome=f"{facts.task.target} = {facts.task.positive}",
        patients=len(ill),
        with_outcome=with_outcome,
        risk_map=choice.chosen,
        losses=losses_of(choice.losses, choice.behind),
        threshold=choose_threshold(rule, choice.chosen.apply(risk), ill).value,
        rule=rule.name,
        target=None if rule.name == "youden" else rule.target,
        flagged=count_patients(flagged, ill),
    )


def adapt_values(facts: ModelFacts, site: str | None, predicted: Numbers, actual: Numbers, *, where: str) -> Adaptation:
    """From predicted and observed quantities."""
    if len(actual) < 2 * FEWEST or np.ptp(actual) == 0:
        raise Refusal(
            f"{len(actual)} patients with a known outcome are too few to adapt the model"
            if len(actual) < 2 * FEWEST
            else f"all {len(actual)} patients have the same outcome",
            where=where,
            remedy=f"gather at least {2 * FEWEST} patients; until then use the model as it is",
        )
    choice = choose_map(predicted, actual, log_odds=False)
    return Adaptation(
        model=facts.digest,
        site=site,
        outcome=facts.task.target,
        patients=len(actual),
        with_outcome=None,
        risk_map=choice.chosen,
        losses=losses_of(choice.losses, choice.behind),
    )


def losses_of(means: Mapping[str, float], behind: Mapping[str, tuple[float, float]]) -> dict[str, MapLoss]:
    return {kind: MapLoss(mean=means[kind], behind=behind[kind][0], error=behind[kind][1]) for kind in means}


def adaptation_path(model: Path, site: str | None) -> Path:
    """Beside the model's file."""
    return model.with_name(adaptation_file(model.name, site))


def write_adaptation(model: Path, adaptation: Adaptation) -> Path:
    path = adaptation_path(model, adaptation.site)
    write_json(path, adaptation.model_dump(mode="json"))
    return path


def read_adaptation(model: Path, facts: ModelFacts, site: str | None) -> Adaptation:
    """What was written for this model and site; what was written for another is refused."""
    path = adaptation_path(model, site)
    content = read_json(path, "adapt the model again")
    if isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise Refusal(
            f"this adaptation has format {content['format']}, and this version reads {FORMAT}",
            where=str(path),
            remedy=f"install wardround {content.get('wardround', '')} or later",
        )
    try:
        found = Adaptation.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(
            f"the adaptation is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']})",
            where=str(path),
            remedy="adapt the model again, or predict with --unadapted",
        ) from None
    if found.model != facts.digest or found.site != site:
        raise Refusal(
            "this adaptation was made for another model or site",
            where=str(path),
            remedy="adapt the model again, or predict with --unadapted",
        )
    return found
