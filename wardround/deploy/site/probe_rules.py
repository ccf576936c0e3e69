"""What a choice of partners may ask of a real site, and what the site's administrator is told of it beforehand.

A study with [partners] lets the coordinator put some probes and counts to the site before it trains. Which ones follows
from the approved words alone: every choice says what it asks, so anything else is refused.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.recipes import Recipe
from wardround.core.text import format_bytes
from wardround.data.site_rows import SiteRows
from wardround.deploy.protocol.wire import encode
from wardround.engine import registry
from wardround.partners.choice import Asks, Choice, Counts, Probe
from wardround.partners.probes.scatter import WIDEST
from wardround.partners.similarity.histograms import ZOOMS, unpacked
from wardround.study.file import PartnersSection, Study

ASSUMED = 10
"""Sites that are reckoned with where the study does not name them."""
COUNTING: Mapping[str, int] = {"kinds_of": 1, "names_of": 1, "cells_of": ZOOMS + 2}
"""The questions of `partners.distribution` (kinds of columns, names, counts of patients), and how often each comes."""


def choice_of(said: PartnersSection) -> Choice:
    """The choice that a study names, made as it says."""
    component = registry.find("choice", said.name, where="[partners]")
    choice: Choice = component.build(where="[partners]", **said.settings)
    return choice


def asks_of(study: Study) -> Asks:
    return Asks() if study.partners is None else choice_of(study.partners).asks


def asks_in(words: Mapping[str, Any]) -> Asks:
    """The same from the table [partners] alone."""
    return choice_of(PartnersSection.model_validate(dict(words))).asks


# ---- what may be asked ----


def probe_departures(study: Study, recipe: Recipe) -> list[str]:
    """Why a probe is not what the approved choice of partners asks; its model is looked at elsewhere."""
    if any(recipe._replace(parts=()) == one.recipe for one in asks_of(study).probes):
        return []
    why = "chooses no partners" if study.partners is None else f"chooses partners by {study.partners.name}"
    return [f"the study {why}, which does not ask for the probe {recipe.name} with these settings"]


def query_departures(study: Study, recipe: Recipe) -> list[str]:
    """Why a question is not the study's; those of the preparation always are."""
    known = registry.queries().get(recipe.name)
    if known is not None and known.__module__.startswith("wardround.data."):
        return []
    counts, said = asks_of(study).counts, dict(recipe.settings)
    if counts is None or recipe.name not in COUNTING:
        return [f"the study does not ask the question {recipe.name}"]
    if recipe.name == "kinds_of" or counted_as_said(counts, said):
        return []
    return [f"the study does not say the question {recipe.name} with this noise and this smallest cell"]


def counted_as_said(counts: Counts, said: Mapping[str, Any]) -> bool:
    """Noise that can be foreseen is none, so no seed; and no more of it is spent on one count than on all."""
    epsilon = said.get("epsilon")
    if said.get("seed") is not None or said.get("smallest_cell") != counts.smallest_cell:
        return False
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        return False
    return 0 < epsilon <= counts.epsilon if counts.epsilon else epsilon == 0


def refuse_course(study: Study, header: Mapping[str, Any]) -> None:
    """A course is a training while partners are chosen: there are none in a study that does not choose so."""
    course = header.get("course")
    if course is None:
        return
    kind = header["algorithm"].get("kind")
    asks = asks_of(study)
    # `type` and not isinstance: true is no number.
    if type(course) is not int or course < 1 or not (asks.trains if kind == "algorithm" else asks.probes):
        raise Refusal(
            "a training beside the study's own was asked for, and the approved study has none",
            remedy="ask for what was approved",
        )


def countable(own: SiteRows) -> Site:
    """What counts may look at: the training rows with their outcome, but no column that was set aside."""
    columns = list(dict.fromkeys((*own.schema.kinds, own.target)))
    return Site(own.name, own.frame[columns].iloc[own.parts[0]].reset_index(drop=True))


def debit(folder: Path, study: Study, header: Mapping[str, Any], message: Message) -> None:
    """Charge a question about counts before it is answered; refuse more noise or more questions than were approved.

    The same request, asked again since its answer was lost before it left, is charged once. Any other is charged, even
    if only a word of it differs: its answer has noise of its own, and many such would take the noise away; without
    noise, counts between ever other edges would tell single patients apart.
    """
    name, settings = header["query"]["name"], header["query"]["settings"]
    counts = asks_of(study).counts
    if name not in COUNTING or counts is None:
        return
    cost = 0.0 if name == "kinds_of" else float(settings["epsilon"]) * len(unpacked(message.arrays["columns"]))
    path = folder / "counted.json"
    charged: dict[str, tuple[str, float]] = json.loads(path.read_bytes()) if path.exists() else {}
    charged[hashlib.sha256(encode(dict(header), message)).hexdigest()] = (name, cost)
    spent = sum(paid for _, paid in charged.values())
    if spent > counts.epsilon * (1 + 1e-6) or sum(one == name for one, _ in charged.values()) > COUNTING[name]:
        raise Refusal(
            "counts of patients were asked for once more, or with less noise, than choosing partners takes "
            f"(at most {COUNTING[name]} times {name}, an epsilon of {counts.epsilon:g} in all)",
            remedy="ask for what was approved",
        )
    write_whole(path, json.dumps(charged).encode())


# ---- what is told beforehand ----


def numbers_in(probe: Probe, parameters: int, sites: int) -> int:
    """How many numbers an answer to a probe has, of a model with so many parameters."""
    models, told = probe.models(sites), min(WIDEST, parameters)
    sizes = {
        "slopes": parameters + 1,
        "own_models": 2 * parameters + 3,
        "scatter": told + told**2 + 1,
        "losses": 2 * models + models**2 + 1,
        "curvature": sites * parameters + sites + 1,
    }
    return sizes[probe.recipe.name]


WORDS: Mapping[str, str] = {
    "slopes": "where its patients pull the model: the mean gradient of their loss",
    "own_models": "a model trained on its patients alone, how sure each weight is, and how well it does here",
    "scatter": "the mean gradient of its patients' loss, and how single patients' gradients scatter around it",
    "losses": "how well models that it is sent do on its patients: the mean loss of each, and how they differ",
    "curvature": "how its patients' loss bends around a model",
}
"""What the answers to a probe tell; each also tells the number of patients."""


def leaves_for_partners(study: Study, parameters: int | None) -> tuple[str, ...]:
    """What leaves while partners are chosen, in sentences for whoever decides; none where none are chosen."""
    if study.partners is None:
        return ()
    asks, sites = asks_of(study), len(study.deploy.sites) or ASSUMED
    least = f"if {sites} sites take part" if study.deploy.sites else f"reckoned with {sites} sites"
    told = [
        f"Before training, partners are chosen for {study.study.user} (choice/{study.partners.name}), and your answers "
        "leave whether you are chosen or not. If you are not, no round of training is asked of you afterwards."
    ]
    if asks.trains:
        told.append(f"Meanwhile the sites train {asks.trains}; in each of these rounds leaves what leaves in a round.")
    for probe in asks.probes:
        name = probe.recipe.name
        part = dict(probe.recipe.settings).get("part", "train")
        held = "training" if part == "train" else part
        size = "its size is not known yet"
        if parameters is not None:
            count = numbers_in(probe, parameters, sites)
            size = f"{count:,} numbers, about {format_bytes(4 * count)}, {least}"
        words = WORDS.get(name, "see its documentation")
        told.append(f"For the probe {name}, {probe.times}: {words} ({held} patients; {size}). No noise is added.")
    if asks.counts is not None:
        noise = f"with noise of epsilon {asks.counts.epsilon:g} in all" if asks.counts.epsilon else "without noise"
        told.append(
            "Counts of your training patients in every column, outcome included, by ranges and by categories, up to "
            f"seven times, {noise}; no count below {asks.counts.smallest_cell} patients."
        )
    return tuple(told)
