"""Pooled XGBoost on bins that were agreed elsewhere: reads arrays, writes scores and what the training took.

Runs in an environment of its own: PYTHON xgboost_trees.py IN.npz OUT.npz '{"max_depth": 4}' TREES.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import xgboost  # type: ignore[import-not-found]

given = np.load(sys.argv[1])
settings, trees = json.loads(sys.argv[3]), int(sys.argv[4])
kinds = ["c" if one else "q" for one in given["is_category"]]


def matrix(codes: Any, label: Any = None) -> Any:
    # A bin is a number of its own, so that XGBoost has the same ones; the last place stands for missing values.
    values = np.where(codes == int(given["missing"]), np.nan, codes).astype(np.float32)
    return xgboost.DMatrix(values, label, feature_types=kinds, enable_categorical=True)


learn, test = matrix(given["codes"], given["y"]), matrix(given["test"])
words = {"tree_method": "hist", "max_bin": 256, "nthread": 1, "max_cat_to_onehot": 1, **settings}
took = []
for _ in range(3):
    began = time.process_time()
    booster = xgboost.train(words, learn, trees)
    took.append(time.process_time() - began)
np.savez(sys.argv[2], scores=booster.predict(test), seconds=min(took), version=xgboost.__version__)
