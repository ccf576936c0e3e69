import numpy as np

from wardround.data.datasets.heart_disease import heart_disease
from wardround.weak_supervision.function import votes_of
from wardround.weak_supervision.functions.conjunction import conjunction


def test_real_patients_as_pandas_counts_them():
    rows = heart_disease().sites["cleveland"]
    made = conjunction(condition="thalach < 150 and exang = yes", label="disease")
    other = ((rows["thalach"] < 150) & (rows["exang"] == "yes")).to_numpy()
    found = votes_of([made], rows)[:, 0]
    assert np.array_equal(found, other)
    assert 0 < found.sum() < len(rows)
    assert made.columns == ("thalach", "exang")
