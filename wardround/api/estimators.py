"""Federated training as scikit-learn estimators: fit, predict, and everything that scikit-learn builds on these.

Rows are numbers, as scikit-learn passes them. Which site a row belongs to is given to `fit` as `sites` (by metadata
routing in pipelines and searches); without, all rows are one site. Preparation belongs into the pipeline.
"""

from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from wardround.api.objects import words_for
from wardround.core.contracts import Algorithm, Task
from wardround.core.federation import assemble as assemble_federation
from wardround.engine.fit import Schedule, fit
from wardround.engine.participation import everyone
from wardround.engine.predictions import predict_rows
from wardround.engine.simulate import Simulation
from wardround.study import assemble
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method

Rows = np.ndarray[Any, Any]


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    def __init__(
        self,
        model: Any = None,
        algorithm: Any = "fed_avg",
        aggregator: Any = "weighted_mean",
        rounds: int = 50,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self.aggregator = aggregator
        self.rounds = rounds
        self.seed = seed

    def _train(self, x: Rows, y: Rows, classes: tuple[str, ...], sites: Any) -> None:
        names, place = sites_of(sites, len(x))
        self._center, self._scale = scales(x)
        self._task, self.sites_ = Task((x.shape[1],), classes), names
        prepared = self._prepare(x)
        nothing = (prepared[:0], y[:0])
        federation = assemble_federation(
            [(name, [(prepared[place == n], y[place == n]), nothing, nothing]) for n, name in enumerate(names)],
            self._task,
        )
        study, algorithm = self._study(), self._algorithm()
        rounds = study.study.rounds
        with Simulation(federation, seed=study.study.seed) as engine:
            fitted = fit(
                algorithm,
                engine,
                assemble.model_of(study, self._task).init(jax.random.key(study.study.seed)),
                everyone(len(names)),
                Schedule(rounds, rounds, rounds),
                validates=False,
            )
            self._params = jax.device_get(algorithm.params(fitted.progress.server))
            self._personal = engine.personal_models(algorithm, fitted.progress)

    def _study(self) -> Study:
        """The words of a study that says what the parameters say."""
        default = "logistic" if self._task.classes else "linear"
        content = {
            "study": {"name": "estimator", "rounds": int(self.rounds), "seed": int(self.seed)},
            "data": {"source": "python"},
            "model": words_for("model", default if self.model is None else self.model),
            "algorithm": words_for("algorithm", self.algorithm),
            "aggregator": words_for("aggregator", self.aggregator),
        }
        return parse_study(content, where=type(self).__name__)

    def _algorithm(self) -> Algorithm:
        """Made from words each time, and remembered elsewhere, so that a fitted estimator can be copied and stored."""
        study = self._study()
        return assemble.build(study, own_method(study), self._task, self.sites_)

    def _prepare(self, x: Rows) -> Rows:
        return ((x - self._center) / self._scale).astype(np.float32)

    def _predict(self, x: Any, sites: Any = None) -> Rows:
        check_is_fitted(self)
        x = validate_data(self, x, reset=False)
        prepared = self._prepare(x)
        if self._personal is None:
            return predict_rows(self._algorithm(), self._params, prepared)
        names, place = sites_of(self.sites_[0] if sites is None and len(self.sites_) == 1 else sites, len(x))
        unknown = [name for name in names if name not in self.sites_]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of the sites that the model was trained for: {self.sites_}")
        result: Rows | None = None
        for number, name in enumerate(names):
            at = self.sites_.index(name)
            own = jax.tree.map(lambda array, at=at: array[at], self._personal)
            found = predict_rows(self._algorithm(), own, prepared[place == number])
            result = np.zeros((len(x), *found.shape[1:]), found.dtype) if result is None else result
            result[place == number] = found
        assert result is not None
        return result


def sites_of(sites: Any, rows: int) -> tuple[list[str], Rows]:
    """The names of the sites in sorted order, and each row's place among them."""
    if sites is None or isinstance(sites, str):
        return [sites or "all"], np.zeros(rows, np.int64)
    given = np.asarray(sites)
    if len(given) != rows:
        raise ValueError(f"there are {rows} rows, and {len(given)} sites are named")
    names, place = np.unique(given.astype(str), return_inverse=True)
    return [str(name) for name in names], place


def scales(x: Rows) -> tuple[Rows, Rows]:
    """Mean and spread of every column, so that one learning rate fits all."""
    with np.errstate(over="ignore"):
        center, spread = x.mean(axis=0), x.std(axis=0)
    return center, np.where((spread > 0) & np.isfinite(spread), spread, 1.0)


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """A classifier that several sites train together."""

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Train on the rows, each at the site that `sites` names for it."""
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        self._train(X, labels.astype(np.int32), tuple(map(str, self.classes_)), sites)
        return self

    def predict_proba(self, X: Any, sites: Any = None) -> Rows:
        """Probabilities of the classes; where sites have models of their own, `sites` says whose."""
        return np.asarray(self._predict(X, sites), np.float64)

    def predict(self, X: Any, sites: Any = None) -> Rows:
        """The most probable class."""
        chosen = self.predict_proba(X, sites).argmax(axis=1)
        return np.asarray(self.classes_[chosen])


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """A regression that several sites train together."""

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Train on the rows, each at the site that `sites` names for it."""
        X, y = validate_data(self, X, y, y_numeric=True)
        self._shift, self._spread = float(np.mean(y)), float(np.std(y)) or 1.0
        self._train(X, ((y - self._shift) / self._spread).astype(np.float32), (), sites)
        return self

    def predict(self, X: Any, sites: Any = None) -> Rows:
        """The predicted values."""
        return np.asarray(self._predict(X, sites), np.float64) * self._spread + self._shift
