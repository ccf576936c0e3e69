"""A model adapted to a site from a table of its patients: predictions beside outcomes, then a file beside the model."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from wardround.core.contracts import Algorithm
from wardround.core.errors import Refusal
from wardround.predict.adaptation import Adaptation, adapt_risks, adapt_values, write_adaptation
from wardround.predict.operating_point import parse_rule
from wardround.predict.outcomes import event_of, is_known, outcomes_of
from wardround.predict.patients import refuse_other_sites
from wardround.predict.predictor import read_predictor, refuse_survival
from wardround.runs.model_file import ModelFacts, read_facts
from wardround.runs.models import find_model


def adapt_model(
    run: Path,
    read: Callable[[ModelFacts], pd.DataFrame],
    *,
    site: str | None,
    method: str | None,
    outcome: str | None,
    by: str | None,
    make: Callable[[ModelFacts], Algorithm | None] = lambda _: None,
    where: str = "the patients",
) -> tuple[Path, Adaptation]:
    """What was written and where; `read` gives the patients once the model is known."""
    rule = None if by is None else parse_rule(by)
    path = find_model(run, method, site, common=lambda _: True)
    predictor = read_predictor(path, site, make(read_facts(path)))
    facts, task = predictor.facts, predictor.facts.task
    refuse_survival(predictor, "an adaptation")
    if task.classes and predictor.positive is None:
        raise Refusal(
            f"the model tells {len(task.classes)} classes apart, and only a risk or a quantity can be adapted",
            where=str(path),
            remedy="use the model as it is",
        )
    if rule is not None and not task.classes:
        raise Refusal(f"{task.target} is a quantity, so nobody is flagged", where="--by", remedy="leave --by out")
    frame = read(facts)
    refuse_other_sites(frame, facts, site, where=where)
    outcomes = outcomes_of(frame, predictor, outcome, where=where)
    known = is_known(outcomes)
    predicted = predictor.predict(frame[known], where=where)
    if predictor.positive is None:
        found = adapt_values(facts, site, predicted, outcomes[known], where=where)
    else:
        ill = event_of(predictor, outcomes[known])
        found = adapt_risks(facts, site, predicted[:, predictor.positive], ill, rule, where=where)
    return write_adaptation(path, found), found
