"""A trained model as plain arrays, which every export writes in its own language.

All models of this package are one family: inputs moved by a shift, convolutions, dense layers with ReLU between them, a
softmax (or one value), and perhaps a mixture of two such models. Modules of others can be anything, and are refused.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wardround.algorithms.context_features import SHIFT
from wardround.core.components.packages import OWN
from wardround.core.components.recipes import from_json, names_in
from wardround.core.contracts import Params
from wardround.core.errors import Refusal
from wardround.engine.registry import package_of
from wardround.predict.predictor import Predictor, Rows

if TYPE_CHECKING:
    from wardround.predict.recalibration import RiskMap

MODELS = ("logistic", "linear", "mlp", "cnn")
MIXTURE = {"common", "own", "share"}


class Layer(NamedTuple):
    """Of a dense layer (inputs, outputs) and (outputs,); of a convolution (height, width, channels, filters)."""

    kernel: Rows
    bias: Rows


class Network(NamedTuple):
    """Convolutions with ReLU and 2 x 2 pooling, then dense layers with ReLU between them."""

    convolutions: tuple[Layer, ...]
    dense: tuple[Layer, ...]
    shift: Rows | None = None
    """Added to the inputs."""


class PlainModel(NamedTuple):
    """Networks whose predictions are added up, each by its share."""

    parts: tuple[tuple[np.float32, Network], ...]
    regression: bool

    @property
    def is_linear(self) -> bool:
        return len(self.parts) == 1 and len(self.parts[0][1].dense) == 1 and not self.parts[0][1].convolutions


def plain_model(predictor: Predictor) -> PlainModel:
    """The arrays of a model; refused where a component of others decides what they mean."""
    refuse_unknown(predictor)
    params = predictor.params
    regression = predictor.facts.task.kind == "regression"
    if set(params) != MIXTURE:
        return PlainModel(((np.float32(1), network_of(params)),), regression)
    share = np.float32(params["share"])
    own, common = network_of(params["own"]), network_of(params["common"])
    return PlainModel(((share, own), (np.float32(1) - share, common)), regression)


def refuse_unknown(predictor: Predictor) -> None:
    facts = predictor.facts
    used = () if facts.recipe is None else names_in(from_json(facts.recipe))
    models = [name for kind, name in used if kind == "model"]
    foreign = [name for kind, name in used if kind in ("model", "algorithm") and package_of(kind, name) != OWN]
    foreign += [name for name in models if name not in MODELS]
    foreign += [name for kind, name in used if kind == "analysis"]
    if foreign or not models:
        named = (
            f"the component {foreign[0]!r}" if foreign else "a model made in Python (your own Flax or PyTorch module)"
        )
        raise Refusal(
            f"{named} cannot be exported: only its own program knows what its parameters mean",
            where=f"model of {facts.study}",
            remedy=f"train one of {', '.join(MODELS)}, or use this model with `wardround predict`",
        )


def network_of(params: Params) -> Network:
    shift = params.get(SHIFT)
    return Network(
        layers_of(params, "conv"), layers_of(params, "dense"), None if shift is None else np.asarray(shift, np.float32)
    )


def layers_of(params: Mapping[str, Any], kind: str) -> tuple[Layer, ...]:
    found: list[Layer] = []
    while f"{kind}_{len(found)}/kernel" in params:
        name = f"{kind}_{len(found)}"
        found.append(Layer(*(np.asarray(params[f"{name}/{part}"], np.float32) for part in ("kernel", "bias"))))
    return tuple(found)


def smooth_map(predictor: Predictor) -> "RiskMap | None":
    """How predictions are mapped at the site, where they are; a map with steps has no equal to the last digits."""
    found = None if predictor.adaptation is None else predictor.adaptation.risk_map
    if found is not None and found.kind == "isotonic":
        raise Refusal(
            "this model was adapted to a site by an isotonic map, whose steps other programs would round otherwise",
            where=f"model of {predictor.facts.study}",
            remedy="export the model as it was trained with --unadapted, or use `wardround predict`",
        )
    return None if found is None or found.kind == "none" else found


def evaluate(model: PlainModel, x: Rows) -> Rows:
    """Predictions for prepared rows of a table in double precision, as the calculator computes them."""
    return np.asarray(sum(float(share) * predict_network(part, x, model.regression) for share, part in model.parts))


def predict_network(network: Network, x: Rows, regression: bool) -> Rows:
    values = np.asarray(x, np.float64) + (0 if network.shift is None else np.float64(network.shift))
    for place, layer in enumerate(network.dense):
        values = (np.maximum(values, 0) if place else values) @ np.float64(layer.kernel) + np.float64(layer.bias)
    if regression:
        return np.asarray(values[:, 0])
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
