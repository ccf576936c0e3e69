"""What an approved study may ask of a real site beside training: its own preparation, and what its choice announces.

A study with [partners] lets the coordinator put some probes and queries to the site before it trains. Which ones
follows from the approved words alone: every choice says what it asks, so anything else is refused. How large an answer
is, what it tells, how often it is given and what it spends stands beside each probe and query (`core.terms`).
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wardround.core.components.recipes import Recipe, from_json
from wardround.core.components.terms import Extent, Settings, Terms, terms_of
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.data.preparation_fit import statistics_asked
from wardround.data.site_rows import SiteRows
from wardround.deploy.protocol.requests import Received
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site.release.model_shapes import one_model
from wardround.engine import registry
from wardround.partners.choice import Probe
from wardround.study.analyses.analysis import analysis_of
from wardround.study.analyses.analysis_noise import is_noised
from wardround.study.file import Study
from wardround.study.partners import asks_of
from wardround.study.release_noise import release_noise


def preparation_queries(study: Study) -> tuple[Recipe, ...]:
    """The queries of the study's preparation, or those from which the sites of an analysis agree on its columns.

    A monitor prepares nothing.
    """
    if study.monitor is not None:
        return ()
    said = study.data.preparation
    if study.analysis is not None:
        names = (("epsilon", 0.0), ("seed", None), ("smallest_cell", said.smallest_cell))
        words = Recipe("query", "names_of", names)  # which of them ten patients have is told without noise
        return (Recipe("query", "kinds_of"), *(() if is_noised(study, analysis_of(study)) else (words,)))
    return statistics_asked(
        impute=said.impute,
        scale=said.scale,
        smallest_cell=said.smallest_cell,
        private=study.privacy is not None,
        declared=release_noise(study).statistics is None,
    )


def terms_for(recipe: Recipe) -> Terms:
    return terms_of(registry.find(recipe.kind, recipe.name).factory)


def all_settings(recipe: Recipe) -> Settings:
    """The settings of a recipe, with the defaults of those that it leaves out."""
    parameters = registry.find(recipe.kind, recipe.name).parameters
    return {one.name: one.default for one in parameters if not one.required} | dict(recipe.settings)


def numbers_in(recipe: Recipe, extent: Extent) -> int:
    """How many numbers an answer has, at most."""
    return terms_for(recipe).numbers(extent._replace(settings=all_settings(recipe)))


def numbers_in_probe(probe: Probe, parameters: int, sites: int) -> int:
    return numbers_in(probe.recipe, Extent(parameters=parameters, sites=sites, models=probe.models(sites)))


# ---- what may be asked ----


def probe_departures(study: Study, recipe: Recipe) -> list[str]:
    """Why a probe is not what the approved choice of partners asks; its model is looked at elsewhere."""
    if any(recipe._replace(parts=()) == one.recipe for one in asks_of(study).probes):
        return []
    why = "chooses no partners" if study.partners is None else f"chooses partners by {study.partners.name}"
    return [f"the study {why}, which does not use the probe {recipe.name} with these settings"]


def query_departures(study: Study, recipe: Recipe) -> list[str]:
    """Why a question is not the study's. Of the preparation's, columns and cells are what the policy looks at."""
    if any(one.name == recipe.name for one in preparation_queries(study)):
        return []
    said = [one for one in asks_of(study).queries if one.name == recipe.name]
    if not said:
        return [f"the study does not use the query {recipe.name}"]
    asked = all_settings(recipe)
    wrong = [terms_for(recipe).departs(all_settings(one), asked) for one in said]
    return [] if "" in wrong else [f"the study does not use the query {recipe.name} with this {wrong[0]}"]


def refuse_course(study: Study, asked: Received[Any]) -> None:
    """A course is a training while partners are chosen: there are none in a study that does not choose so."""
    kind = asked.question.algorithm.get("kind")
    asks = asks_of(study)
    if (asked.course or 0) < 1 or not (asks.trains if kind == "algorithm" else asks.probes):
        raise Refusal(
            "extra training was requested, and the approved study has none",
            remedy="ask for what was approved",
        )


def given_to(study: Study, words: Mapping[str, Any], sites: int) -> Callable[[Any], Any]:
    """What an algorithm or a probe is given, from one model: a probe just as many as the approved choice announces."""
    if words.get("kind") != "probe":
        return one_model
    recipe = from_json(words)._replace(parts=())
    for one in asks_of(study).probes:
        if one.recipe == recipe:
            given, models = terms_for(recipe).given, one.models(sites)
            return lambda params: given(params, models)
    raise Refusal("; ".join(probe_departures(study, recipe)), remedy="ask for what was approved")


def visible_rows(recipe: Recipe, own: SiteRows) -> Site:
    """What a query may look at, once the rows are split: no column that was set aside, and no row held out."""
    if terms_for(recipe).rows != "training":
        return own.training
    columns = list(dict.fromkeys((*own.schema.kinds, own.target)))
    return Site(own.name, own.frame[columns].iloc[own.parts[0]].reset_index(drop=True))


def debit(folder: Path, study: Study, recipe: Recipe, header: Mapping[str, Any], message: Message) -> None:
    """Charge a question before it is answered; refuse more questions, or less noise, than its terms allow.

    The same request, asked again since its answer was lost before it left, is charged once. Any other is charged, even
    if only a word of it differs: its answer has noise of its own, and many such would take the noise away; without
    noise, counts between ever other edges would tell single patients apart.
    """
    terms, name = terms_for(recipe), recipe.name
    if all(one.name != name for one in asks_of(study).queries):
        return  # one of the preparation's, which the gate counts
    budget = asks_of(study).epsilon
    path = folder / "counted.json"
    charged: dict[str, tuple[str, float]] = json.loads(path.read_bytes()) if path.exists() else {}
    cost = terms.spends(all_settings(recipe), message)
    charged[hashlib.sha256(encode(dict(header), message)).hexdigest()] = (name, cost)
    spent = sum(paid for _, paid in charged.values())
    if spent > budget * (1 + 1e-6) or sum(one == name for one, _ in charged.values()) > terms.times:
        raise Refusal(
            f"the query {name} was asked more often, or with less noise, than its terms and the approved study allow "
            f"(at most {terms.times} times {name}, an epsilon of {budget:g} in all)",
            remedy="ask for what was approved",
        )
    write_whole(path, json.dumps(charged).encode())
