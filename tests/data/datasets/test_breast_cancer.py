"""Breast cancer: the published counts, and that malignant nuclei are the larger ones."""

from wardround.data.datasets.breast_cancer import breast_cancer


def test_tumours() -> None:
    table = breast_cancer()
    rows = table.sites["all"]
    assert rows.shape == (569, 31)
    assert rows["diagnosis"].value_counts().to_dict() == {"benign": 357, "malignant": 212}
    radius = rows.groupby("diagnosis")["mean radius"].mean()
    assert radius["malignant"] > radius["benign"]
    assert table.positive == "malignant"
