"""What a model of labels tells of new images: a folder of them in, a line for each file out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from wardround.predict.image_files import read_images
from wardround.predict.predictor import Predictor
from wardround.predict.table import outcome_columns

PROBLEM = "problem"


def predict_images(predictor: Predictor, folder: Path, settings: Mapping[str, Any]) -> pd.DataFrame:
    """The file, what is predicted, and of a file that cannot be read why."""
    lines = []
    for files, pixels in read_images(predictor, folder, settings):
        predicted = predictor.predict_prepared(pixels)
        if predictor.adaptation is not None:
            predicted = predictor.adaptation.apply(predicted, predictor.positive)
        told = iter(pd.DataFrame(outcome_columns(predictor, predicted)).to_dict("records"))
        lines += [{"file": one.file, **({} if one.problem else next(told)), PROBLEM: one.problem} for one in files]
    table = pd.DataFrame(lines)
    return table[[*(name for name in table.columns if name != PROBLEM), PROBLEM]]
