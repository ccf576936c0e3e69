"""What both servers of `two_servers` make of the opened products: who is chosen, with which weights.

Both compute it by themselves from the study that was approved, so the second server never opens a sum that the first
one asks for and the study would not choose. Krum and Multi-Krum look at distances only. Weight Erosion keeps weights
from round to round; its own server function is run on points that lie to each other as the updates do.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.components.recipes import Recipe, recipe_of
from wardround.core.contracts import Algorithm, Message, Task
from wardround.core.errors import Refusal
from wardround.deploy.trust.organisations import TWO_SERVERS
from wardround.engine import registry
from wardround.privacy.two_servers.gram import Gram, krum_weights, multi_krum_weights, whole_weights
from wardround.privacy.two_servers.protocol import FEWEST
from wardround.study import assemble
from wardround.study.data_rules import example_shape
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.sections.votes import sketch_task

State = dict[str, Any]
"""What Weight Erosion's server keeps, without the model; empty for Krum and Multi-Krum."""


class RobustChoice(NamedTuple):
    """Whole weights of the chosen sites (none: nothing is to be opened in this round), and what is kept."""

    weights: dict[str, int] | None
    state: State


class RobustRule(NamedTuple):
    """How an approved study chooses. `sites` are all of the study, in the order of their numbers."""

    algorithm: Algorithm
    sites: tuple[str, ...]
    name: str
    settings: Mapping[str, Any]

    @property
    def erodes(self) -> bool:
        """Whether the algorithm's own server chooses, and keeps weights from round to round."""
        return self.name == "weight_erosion"

    @property
    def fewest(self) -> int:
        """Sites without whom nothing is opened."""
        return max(FEWEST, self.algorithm.aggregator.fewest)

    def start(self) -> State:
        """What is kept before the first round."""
        if not self.erodes:
            return {}
        return without_model(self.algorithm.init({"w": jnp.zeros(1)}, len(self.sites)))

    def choose(self, state: State, gram: Gram, rows: Mapping[str, float]) -> RobustChoice:
        """From the products of those who take part, and how many patients each has."""
        if self.name == "krum":
            return RobustChoice(krum_weights(gram, self.settings["bad"]), {})
        if self.name == "multi_krum":
            return RobustChoice(multi_krum_weights(gram, self.settings["bad"], self.settings["keep"]), {})
        return self._erode(state, gram, rows)

    def _erode(self, state: State, gram: Gram, rows: Mapping[str, float]) -> RobustChoice:
        count = len(self.sites)
        weight, site = np.zeros(count, np.float32), np.full(count, count, np.int32)
        steps = np.zeros((count, count), np.float32)
        here = len(gram.sites)
        weight[:here] = [rows[one] for one in gram.sites]
        site[:here] = [self.sites.index(one) for one in gram.sites]
        steps[:here, :here] = points(gram) * weight[:here, None]
        stack = Message({"update": {"w": steps}, "weight": weight, "site": site})
        after = jax.device_get(server_program(self.algorithm)({**state, "params": {"w": np.zeros(count)}}, stack))
        kept = without_model(after)
        if after["stopped"] or after["skipped"] > state["skipped"]:
            return RobustChoice(None, kept)
        alpha = {one: float(after["alpha"][self.sites.index(one)]) for one in gram.sites}
        return RobustChoice(whole_weights(alpha), kept)


@lru_cache(maxsize=16)
def server_program(algorithm: Algorithm) -> Any:
    return jax.jit(algorithm.server)


def without_model(state: Mapping[str, Any]) -> State:
    return {key: np.asarray(value) for key, value in state.items() if key != "params"}


def points(gram: Gram) -> np.ndarray[Any, Any]:
    """Points with these inner products, a row a site."""
    values, vectors = np.linalg.eigh(np.ldexp(gram.products.astype(np.float64), -2 * gram.fraction_bits))
    found: np.ndarray[Any, Any] = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def rule_of(study: Study, sites: Sequence[str]) -> RobustRule:
    """The rule of an approved study."""
    plain, shape = study.model_copy(update={"privacy": None}), example_shape(study)
    try:
        algorithm = assemble.build(plain, own_method(study), sketch_task(study), sites)
    except Refusal:  # a model may be for regression only
        algorithm = assemble.build(plain, own_method(study), Task(shape), sites)
    return rule_for(algorithm, sites)


def rule_for(algorithm: Algorithm, sites: Sequence[str]) -> RobustRule:
    recipe = recipe_of(algorithm)
    found = next((one for one in (recipe, *recipe.parts) if one.name in ("krum", "multi_krum", "weight_erosion")), None)
    if found is None or not algorithm.aggregator.products:
        raise Refusal(
            "the second server must choose by itself, and knows krum, multi_krum and weight_erosion only",
            where="[[transforms]] two_servers",
            remedy="choose one of them",
        )
    return RobustRule(algorithm, tuple(sites), found.name, all_settings(found))


def all_settings(recipe: Recipe) -> dict[str, Any]:
    known = {one.name: one.default for one in registry.find(recipe.kind, recipe.name).parameters}
    return {**known, **dict(recipe.settings)}


def bound_of(transforms: Sequence[Recipe]) -> float:
    """The longest update of the study's last transform; only two servers at the end are understood."""
    if not transforms or transforms[-1].name != TWO_SERVERS:
        raise Refusal("two servers must be the last transform", where="[[transforms]]", remedy="move it to the end")
    settings = all_settings(transforms[-1])
    if int(settings["side"]) != 1:
        raise Refusal(
            "over real sites every site deals the products of its own mask, so there is no square of dealers",
            where="[[transforms]] two_servers, side",
            remedy="leave side out",
        )
    return float(settings["bound"])


def transform_recipes(study: Study) -> list[Recipe]:
    return [Recipe("transform", one.name, tuple(sorted(one.settings.items()))) for one in study.transforms]
