"""Invented hospitals (one lacks columns, one has a weight turned round, one has nearly nobody) and what they answer."""

from functools import cached_property

import jax
import numpy as np
import pandas as pd

from wardround.core.contracts import Message, Site
from wardround.data.load import load
from wardround.data.table import Table
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.partners.probes.feature_gains import feature_gains, plan_trials
from wardround.partners.probes.own_models import own_models
from wardround.partners.similarity.site_feedback import (
    differing_weights,
    further_features,
)
from wardround.queries.recorded_columns import recorded_columns

SURE = {"epochs": 60}


class Asked:
    """A loaded table, what its sites answered, and the questions put to them again for any site."""

    def __init__(self, table, model_of):
        self.loaded = load(table, seed=1, shares=(0.8, 0.1, 0.1), missing_columns="fill")
        federation = self.loaded.federation
        self.task, self.features, self.sites = federation.task, federation.features, federation.sites
        self.columns = [column.name for column in self.loaded.preparation.columns]
        tables = [Site(name, frame) for name, frame in self.loaded.table.sites.items()]
        self.engine = Simulation(federation, tables=tables)
        self.recorded = np.array(self.engine.ask(recorded_columns(columns=self.columns), Message({}))["recorded"])
        self.model = model_of(self.task)
        self.params = self.model.init(jax.random.key(0))
        self.gains = feature_gains(self.model, **SURE)

    @cached_property
    def own(self):
        return self.probe(own_models(self.model, **SURE), self.params)

    def probe(self, algorithm, params):
        progress = self.engine.begin(algorithm, params)
        done = self.engine.train(algorithm, progress, [(1, np.arange(len(self.sites)))])[0]
        return jax.tree.map(np.asarray, done.server)

    def further(self, site, **options):
        tried = plan_trials(self.features, self.columns, self.recorded, site)
        state = self.probe(self.gains, {"params": self.params, "keep": tried.keep})
        return further_features(state, tried, self.columns, self.recorded, site, **options)

    def weights(self, site, **options):
        return differing_weights(
            self.own,
            self.features,
            self.columns,
            self.recorded,
            site,
            target=self.task.target,
            classes=self.task.classes,
            **options,
        )


def patients(site, rows, *, fever=1.2, regression=False):
    """Disease depends on lab (and its twin, the same but for a little noise), fever and age, not on shoe size."""
    generator = np.random.default_rng([5, site])
    lab, age, shoe = generator.normal(0, 1, (3, rows))
    hot = generator.random(rows) < 0.5
    pull = 1.6 * lab + fever * np.where(hot, 1, -1) + 0.8 * age
    frame = pd.DataFrame({"lab": lab, "twin": lab + generator.normal(0, 0.1, rows), "shoe_size": shoe, "age": age})
    frame["fever"] = np.where(hot, "yes", "no")
    if regression:
        return frame.assign(cost=pull + generator.normal(0, 0.7, rows))
    ill = generator.random(rows) < 1 / (1 + np.exp(-pull))
    return frame.assign(ill=np.where(ill, "yes", "no"))


def hospitals(**options):
    """The first lacks what others record, fever means the opposite at the second, the last has next to nobody."""
    frames = {f"hospital {site}": patients(site, 220, fever=-1.2 if site == 1 else 1.2, **options) for site in range(4)}
    frames["hospital 0"] = frames["hospital 0"].drop(columns=["lab", "twin"]).assign(shoe_size=np.nan)
    frames["hospital 4"] = patients(4, 12, **options)
    return frames


def asked_ill() -> Asked:
    return Asked(Table(hospitals(), target="ill", origin="made up", positive="yes"), logistic)


def asked_cost() -> Asked:
    table = Table(hospitals(regression=True), target="cost", origin="made up", task="regression")
    return Asked(table, linear)
