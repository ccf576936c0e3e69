"""A trained model as a fitted scikit-learn estimator: raw columns in, as `wardround predict` takes them.

The estimator holds where its model file lies and nothing else. It reads the file when it is first used, so a clone or
a copy in another process is as good as the original; nothing is ever unpickled from a model file. `fit` learns nothing:
it checks that the columns and labels are those of the model, which lets cross-validation and calibration use it.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from wardround.core.errors import Refusal
from wardround.predict.patients import align_categories
from wardround.predict.predictor import Predictor, Rows, load_predictor, refuse_survival
from wardround.predict.table import outcome_columns
from wardround.runs.model_file import read_facts, write_model


class SavedModel(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: where the model lies, and its columns.

    `model` is a run folder or a model file, `site` whose personal model to use, `method` which of several methods.
    """

    def __init__(self, model: str | Path, site: str | None = None, method: str | None = None) -> None:
        self.model = model
        self.site = site
        self.method = method

    @property
    def predictor(self) -> Predictor:
        return open_predictor(Path(self.model), self.site, self.method, stamps_of(Path(self.model)))

    @property
    def feature_names_in_(self) -> Rows:
        return np.array([column.name for column in self.predictor.preparation.columns], dtype=object)

    @property
    def n_features_in_(self) -> int:
        return len(self.feature_names_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def frame_of(self, X: Any) -> pd.DataFrame:
        """The raw columns: those of a data frame by their names, others in the order of `feature_names_in_`."""
        if isinstance(X, pd.DataFrame):
            known = set(self.feature_names_in_) <= set(X.columns)
            return align_categories(X, self.predictor.preparation) if known else X  # which is then refused
        rows = np.asarray(X, dtype=object)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise Refusal(
                f"the rows have the shape {rows.shape}, and the model takes {self.n_features_in_} columns",
                where=str(self.model),
                remedy="pass a data frame, or the columns in the order of feature_names_in_",
            )
        return pd.DataFrame(rows, columns=self.feature_names_in_).infer_objects()


class SavedClassifier(ClassifierMixin, SavedModel):  # type: ignore[misc]
    """A trained classification; of two classes `predict` gives the positive one from the operating point on."""

    @property
    def classes_(self) -> Rows:
        """Sorted, as scikit-learn has them."""
        return np.sort(np.array(self.predictor.facts.task.classes))

    def fit(self, X: Any, y: Any = None) -> "SavedClassifier":
        """Learns nothing; refuses columns and labels that are not the model's."""
        self.predictor.preparation.apply(self.frame_of(X).iloc[:1])
        strange = (
            [] if y is None else sorted(set(np.unique(np.asarray(y)).tolist()) - set(self.classes_.tolist()), key=str)
        )
        if strange:
            raise Refusal(
                f"{strange[0]!r} is no outcome of this model",
                where=str(self.model),
                remedy=f"its outcomes are texts: {', '.join(map(repr, self.classes_.tolist()))}",
            )
        return self

    def predict_proba(self, X: Any) -> Rows:
        """A column for each of `classes_`."""
        predictor = self.predictor
        order = np.argsort(np.array(predictor.facts.task.classes))
        return np.asarray(predictor.predict(self.frame_of(X)), np.float64)[:, order]

    def predict(self, X: Any) -> Rows:
        predictor = self.predictor
        found = outcome_columns(predictor, predictor.predict(self.frame_of(X)))
        return found[predictor.facts.task.target].astype(str)


class SavedRegressor(RegressorMixin, SavedModel):  # type: ignore[misc]
    """A trained regression."""

    def fit(self, X: Any, y: Any = None) -> "SavedRegressor":  # noqa: ARG002 (scikit-learn passes it)
        """Learns nothing; refuses columns that are not the model's."""
        self.predictor.preparation.apply(self.frame_of(X).iloc[:1])
        return self

    def predict(self, X: Any) -> Rows:
        return np.asarray(self.predictor.predict(self.frame_of(X)), np.float64)


def sklearn_model(
    model: str | Path, site: str | None = None, method: str | None = None
) -> SavedClassifier | SavedRegressor:
    """The estimator for a model: of a run folder, or of a file."""
    found = SavedModel(model, site, method).predictor
    refuse_survival(found, "an estimator of scikit-learn")
    _ = found.preparation  # refuses a model of arrays here and not later
    kind = SavedRegressor if found.facts.task.kind == "regression" else SavedClassifier
    made: SavedClassifier | SavedRegressor = kind(model, site, method)
    return made


@lru_cache(maxsize=16)
def open_predictor(model: Path, site: str | None, method: str | None, stamps: tuple[tuple[int, int], ...]) -> Predictor:
    """As `predict` uses it, read once while the files stay the same; a file with one site's model needs no name."""
    sites = read_facts(model).sites if model.is_file() else ()
    return load_predictor(model, method, sites[0] if site is None and len(sites) == 1 else site)


def stamps_of(model: Path) -> tuple[tuple[int, int], ...]:
    """What changes when a model, or what adapts it to a site, is written anew."""
    beside = model.parent.glob(f"{model.stem}*.json") if model.is_file() else model.glob("*.json")
    files = [model, *sorted(beside), *sorted(model.glob("*.safetensors"))]
    return tuple((found.st_mtime_ns, found.st_size) for found in (path.stat() for path in files if path.exists()))


def write_single(path: Path, predictor: Predictor) -> None:
    """A model file that holds this one model and no other site's."""
    _ = predictor.preparation
    own = predictor.site is not None and bool(predictor.facts.sites)
    params = jax.tree.map(lambda array: np.asarray(array)[None], predictor.params) if own else predictor.params
    write_model(path, params, predictor.facts.model_copy(update={"sites": (predictor.site,) if own else ()}))
