"""Snorkel's label model on votes: `python -m benchmarks.peers.with_snorkel VOTES CLASSES`, in Snorkel's environment.

VOTES holds the arrays train and test, a row for each text and -1 where a function abstains. The class probabilities of
the test rows are written beside it as beliefs.npy. 500 epochs, seed 0; all else is its default.
"""

# mypy: disable-error-code="import-not-found"

import sys
from pathlib import Path

import numpy as np
from snorkel.labeling.model import LabelModel


def main(path: Path, classes: int) -> None:
    votes = np.load(path)
    model = LabelModel(cardinality=classes, verbose=False)
    model.fit(votes["train"], n_epochs=500, seed=0, progress_bar=False)
    np.save(path.parent / "beliefs.npy", model.predict_proba(votes["test"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
