"""Patients with suspected Ebola at several hospitals, made up, with a known truth: which hospitals resemble each other.

Modelled on the signs of the triage score of Hartley et al., "Predicting Ebola infection: a malaria-sensitive triage
score for Ebola virus disease", PLOS Neglected Tropical Diseases 2017. Nobody's data are in it. Needs nothing, costs
milliseconds.

How it is made. Hospital i belongs to group i mod `clusters` of GROUPS. With d = `degree`, every number of a group is
common + d · (own - common), both in the tables POPULATION and COEFFICIENTS below: d = 0 makes all hospitals alike,
d = 1 sets the groups wholly apart. Sizes are proportional to exp(0.4 · Normal(0, 1)), `patients` on average, at least
1. Rates in POPULATION are log-odds; a hospital's own are moved by d · Normal(0, 0.2). Then, for each patient:

    age                  Normal(age, 16), cut to 0..90, whole years
    sex                  female or male, 1/2 each
    malaria_test         positive with log-odds malaria - 0.02 · (age - 30)
    days_since_symptoms  1 + Poisson(days)
    contact              yes with log-odds contact
    temperature          Normal(37.5 + 0.7 · malaria, 0.8), to 0.1 degrees; fever is temperature > 38.0
    the eight SIGNS      yes with their log-odds, independently
    myalgia              yes with log-odds myalgia + 0.8 · malaria
    ebola                confirmed with log-odds intercept + sum of coefficient · value, where yes, positive and female
                         count 1, age counts (age - 30) / 15, days count days - 4, temperature counts itself - 38.0

The coefficients depend on the group alone: hospitals of one group share p(y|x) exactly. At last temperature (and with
it fever), days_since_symptoms, dysphagia and myalgia go missing, each at random for the share `missing` of patients.

`truth` holds the groups, the reason in words, the coefficients, and for every hospital the area under the ROC curve and
the accuracy that nobody can beat (from 20,000 further patients, nothing missing). The tables were chosen so that with
the defaults and logistic regression a hospital alone does worst, all hospitals together better, those of the same group
together best: areas of 0.78, 0.79 and 0.82 (mean of ten splits, 60 % to learn from, 20 % to test). The gaps are small
beside the chance of one split, which shows that order in about six cases of ten, so compare over several.
"""

from typing import Annotated, Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Bound, Count, Share
from wardround.core.errors import Refusal
from wardround.data.table import Table

Numbers = dict[str, float]
Values = np.ndarray[Any, Any]

PLACES = (
    *("Freetown", "Kenema", "Bo", "Port Loko", "Makeni", "Kailahun", "Waterloo", "Koidu"),
    *("Lunsar", "Moyamba", "Magburaka", "Kabala"),
)
SIGNS = ("conjunctivitis", "diarrhoea", "dysphagia", "haemorrhage", "vomiting", "weakness", "headache", "cough")
SOMETIMES_MISSING = (("temperature", "fever"), ("days_since_symptoms",), ("dysphagia",), ("myalgia",))

GROUPS = ("urban", "rural with malaria", "late presenters", "children's wards")
WHY = (
    "malaria is rare and patients come early: fever and muscle pain point to Ebola, and so does a known contact",
    "malaria explains most fever and muscle pain, so these speak against Ebola and a negative malaria test speaks for "
    "it; most people report a contact, so contact says less",
    "patients travel for days, so the time since the first symptoms and the late signs decide",
    "patients are young and diarrhoea is common for other reasons, so it says nothing while conjunctivitis says much",
)
# For each number: what is common to all, then the groups' own in the order of GROUPS.
POPULATION: dict[str, tuple[float, ...]] = {
    "age": (30.0, 33.0, 26.0, 30.0, 12.0),
    "days": (3.0, 2.2, 4.2, 7.0, 3.0),
    "malaria": (-0.6, -1.8, 0.5, -0.6, 0.2),
    "contact": (-0.6, -0.9, 0.4, -0.6, -0.6),
    "conjunctivitis": (-1.1, -1.1, -1.1, -1.1, -1.1),
    "diarrhoea": (-0.5, -0.5, 0.0, -0.5, 0.9),
    "dysphagia": (-1.3, -1.3, -1.3, -0.7, -1.3),
    "haemorrhage": (-2.2, -2.2, -2.2, -1.2, -2.2),
    "vomiting": (-0.4, -0.4, -0.4, -0.4, -0.4),
    "weakness": (0.4, 0.4, 0.4, 0.4, 0.4),
    "headache": (0.2, 0.2, 0.2, 0.2, 0.2),
    "cough": (-0.8, -0.8, -0.8, -0.8, -0.8),
    "myalgia": (-0.5, -0.5, -0.5, -0.5, -0.5),
    "missing": (0.05, 0.04, 0.08, 0.05, 0.05),
}
COEFFICIENTS: dict[str, tuple[float, ...]] = {
    "intercept": (-3.8, -4.1, -2.6, -4.6, -2.4),
    "contact": (1.9, 2.4, 1.0, 0.9, 1.9),
    "days_since_symptoms": (0.15, 0.15, 0.15, 0.5, 0.15),
    "conjunctivitis": (1.5, 1.5, 1.5, 1.5, 2.6),
    "diarrhoea": (1.3, 1.3, 1.3, 0.0, 0.0),
    "dysphagia": (1.5, 1.5, 1.5, 1.5, 0.4),
    "haemorrhage": (1.6, 1.6, 1.6, 2.4, 1.6),
    "vomiting": (0.9, 0.9, 0.9, 0.9, 0.9),
    "weakness": (0.7, 0.7, 0.7, 0.7, 0.7),
    "headache": (0.5, 0.5, 0.5, 0.5, 0.5),
    "cough": (-0.8, -0.8, -0.8, -0.8, -0.8),
    "fever": (0.5, 1.3, -0.5, 0.5, 0.5),
    "temperature": (0.2, 0.4, 0.0, 0.2, 0.2),
    "myalgia": (0.4, 1.1, -0.4, 0.4, 0.4),
    "malaria_test": (-0.7, 0.0, -1.6, -0.7, -0.7),
    "age": (0.2, 0.2, 0.2, 0.2, 1.0),
    "sex": (0.0, 0.0, 0.0, 0.0, 0.0),
}


def triage(
    *,
    hospitals: Count = 4,
    patients: Count = 200,
    degree: Share = 0.7,
    clusters: Annotated[int, Bound(low=1, high=len(GROUPS))] = 2,
    seed: int = 0,
) -> Table:
    """Made-up triage of suspected Ebola at named hospitals, of which some truly resemble each other."""
    if clusters > hospitals:
        raise Refusal(
            f"{clusters} groups of hospitals need at least {clusters} hospitals, not {hospitals}",
            where="data set triage",
            remedy="ask for more hospitals or for fewer clusters",
        )
    rng = np.random.default_rng([seed, 0])
    weights = np.exp(0.4 * rng.standard_normal(hospitals))
    sizes = np.maximum(1, np.round(weights / weights.sum() * hospitals * patients)).astype(int)
    names = [PLACES[i] if i < len(PLACES) else f"Hospital {i + 1}" for i in range(hospitals)]
    group_of = [i % clusters for i in range(hospitals)]
    coefficients = [_of_group(COEFFICIENTS, g, degree) for g in group_of]

    sites: dict[str, pd.DataFrame] = {}
    best: dict[str, dict[str, float]] = {}
    for i, name in enumerate(names):
        own = np.random.default_rng([seed, 1, i])
        population = _population(group_of[i], degree, own)
        values, probability = _patients(int(sizes[i]), population, coefficients[i], own)
        confirmed = own.random(len(probability)) < probability
        sites[name] = _add_gaps(_write_down(values, confirmed), population["missing"], own)
        best[name] = _best_scores(
            _patients(20_000, population, coefficients[i], np.random.default_rng([seed, 2, i]))[1]
        )

    truth = {
        "groups": _groups(names, group_of, degree),
        "why": _why(clusters, degree),
        "coefficients": dict(zip(names, coefficients, strict=True)),
        "best_auc": {name: values["auc"] for name, values in best.items()},
        "best_accuracy": {name: values["accuracy"] for name, values in best.items()},
    }
    settings = f"hospitals={hospitals}, patients={patients}, degree={degree}, clusters={clusters}, seed={seed}"
    return Table(
        sites,
        target="ebola",
        origin=f"made up by triage({settings})",
        task="classification",
        positive="confirmed",
        truth=truth,
    )


def _of_group(numbers: dict[str, tuple[float, ...]], group: int, degree: float) -> Numbers:
    return {name: common + degree * (own[group] - common) for name, (common, *own) in numbers.items()}


def _population(group: int, degree: float, rng: np.random.Generator) -> Numbers:
    population = _of_group(POPULATION, group, degree)
    for name in ("malaria", "contact", *SIGNS, "myalgia"):
        population[name] += degree * 0.2 * rng.standard_normal()
    return population


def _patients(
    count: int, population: Numbers, coefficients: Numbers, rng: np.random.Generator
) -> tuple[dict[str, Values], Values]:
    """Complete patients of one hospital, column by column, and for each the true probability of Ebola."""

    def happens(log_odds: Any) -> Values:
        return rng.random(count) < 1 / (1 + np.exp(-log_odds))

    age = np.round(np.clip(rng.normal(population["age"], 16.0, count), 0, 90))
    female = happens(0.0)
    malaria = happens(population["malaria"] - 0.02 * (age - 30))
    days = 1 + rng.poisson(population["days"], count)
    contact = happens(population["contact"])
    temperature = np.round(rng.normal(37.5 + 0.7 * malaria, 0.8), 1)
    values = {
        "age": age,
        "sex": female,
        "contact": contact,
        "days_since_symptoms": days.astype(float),
        "temperature": temperature,
        "fever": temperature > 38.0,
        **{name: happens(population[name]) for name in SIGNS},
        "myalgia": happens(population["myalgia"] + 0.8 * malaria),
        "malaria_test": malaria,
    }
    centred = {"age": (age - 30) / 15, "days_since_symptoms": days - 4, "temperature": temperature - 38.0}
    log_odds = coefficients["intercept"] + sum(
        coefficients[name] * centred.get(name, value) for name, value in values.items()
    )
    return values, 1 / (1 + np.exp(-log_odds))


def _write_down(values: dict[str, Values], confirmed: Values) -> pd.DataFrame:
    """The patients as a hospital would write them down: numbers as they are, signs in words."""
    words = {"sex": ("female", "male"), "malaria_test": ("positive", "negative"), "ebola": ("confirmed", "excluded")}
    return pd.DataFrame(
        {
            name: np.where(value, *words.get(name, ("yes", "no"))) if value.dtype == bool else value
            for name, value in {**values, "ebola": confirmed}.items()
        }
    )


def _add_gaps(rows: pd.DataFrame, share: float, rng: np.random.Generator) -> pd.DataFrame:
    for columns in SOMETIMES_MISSING:
        gone = rng.random(len(rows)) < share
        for column in columns:
            rows[column] = rows[column].mask(gone)
    return rows


def _best_scores(probability: Values) -> dict[str, float]:
    """What the true probabilities achieve: the ROC area as the share of pairs (ill, well) ranked rightly."""
    ordered = np.sort(probability)
    ill, well = ordered, 1 - ordered
    # A pair of equal probabilities counts half; the values are continuous, so only a row with itself can tie.
    right = np.sum(ill * (np.cumsum(well) - well / 2))
    return {
        "auc": float(right / (ill.sum() * well.sum())),
        "accuracy": float(np.maximum(ill, well).mean()),
    }


def _groups(names: list[str], group_of: list[int], degree: float) -> dict[str, list[str]]:
    if degree == 0:
        return {"all alike": names}
    return {
        GROUPS[g]: [name for name, group in zip(names, group_of, strict=True) if group == g]
        for g in sorted(set(group_of))
    }


def _why(clusters: int, degree: float) -> dict[str, str]:
    if degree == 0:
        return {"all alike": "all hospitals see the same patients, and the signs mean the same everywhere"}
    return dict(zip(GROUPS[:clusters], WHY[:clusters], strict=True))
