"""Heart disease at four hospitals: who has a narrowed coronary artery, told before the angiography.

The processed UCI set (Janosi, Steinbrunn, Pfisterer, Detrano; CC BY 4.0): 920 patients of Cleveland, Hungary,
Switzerland and the VA in Long Beach. Needs the folder uci_heart_disease. The target "disease" is num > 0 in the file. A
cholesterol of 0 was not measured and counts as missing, unless `zero_chol_missing` is off. slope, ca and thal, which
three hospitals hardly recorded, are left out unless `complete_columns` is off. `complete_rows` leaves out patients with
a gap; with zero_chol_missing off this gives the 740 patients (303, 261, 46, 130) of the FLamby benchmark.
"""

import numpy as np
import pandas as pd

from wardround.data.folder import data_file
from wardround.data.table import Table

CODES: dict[str, dict[float, str]] = {
    "sex": {0: "female", 1: "male"},
    "cp": {1: "typical angina", 2: "atypical angina", 3: "other pain", 4: "no pain"},
    "fbs": {0: "no", 1: "yes"},
    "restecg": {0: "normal", 1: "ST-T wave abnormality", 2: "left ventricular hypertrophy"},
    "exang": {0: "no", 1: "yes"},
    "slope": {1: "up", 2: "flat", 3: "down"},
    "thal": {3: "normal", 6: "fixed defect", 7: "reversible defect"},
}
HARDLY_RECORDED = ("slope", "ca", "thal")


def heart_disease(
    *, complete_columns: bool = True, complete_rows: bool = False, zero_chol_missing: bool = True
) -> Table:
    """Heart disease at four real hospitals, 920 patients (UCI)."""
    path = data_file("uci_heart_disease", "heart_disease_4_hospitals.csv")
    rows = pd.read_csv(path)
    if complete_columns:
        rows = rows.drop(columns=list(HARDLY_RECORDED))
    if zero_chol_missing:
        rows["chol"] = rows["chol"].replace(0.0, np.nan)
    if complete_rows:
        rows = rows.dropna()
    rows["disease"] = np.where(rows.pop("num") > 0, "disease", "no disease")
    for column in CODES.keys() & set(rows.columns):
        rows[column] = rows[column].map(CODES[column])
    return Table(
        sites=split_by_site(rows, "hospital"),
        target="disease",
        origin=path.name,
        task="classification",
        positive="disease",
    )


def split_by_site(rows: pd.DataFrame, column: str, word: str = "", least: int = 1) -> dict[str, pd.DataFrame]:
    """Each site's rows without the column that names the site, sites with fewer than `least` rows left out."""
    return {
        f"{word}{name}": part.drop(columns=column).reset_index(drop=True)
        for name, part in rows.groupby(column, observed=True)
        if len(part) >= least
    }
