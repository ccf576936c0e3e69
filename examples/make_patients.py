"""Makes patients.csv: 500 invented patients of four hospitals, for the tutorial. Nobody's data are in it.

The hospitals differ: South sees older patients, East measures lactate less often, West is small. Whether a patient was
admitted to intensive care is drawn from a logistic model of age, heart rate, lactate and sex, with another base rate at
each hospital.
"""

import csv
import sys
from pathlib import Path

import numpy as np

HOSPITALS = {
    # name: (patients, mean age, share without lactate, base rate as log-odds)
    "North": (220, 58, 0.05, -1.0),
    "South": (140, 71, 0.05, -0.6),
    "East": (90, 55, 0.40, -1.2),
    "West": (50, 60, 0.10, -0.8),
}
HEADER = ("hospital", "patient_id", "age", "sex", "heart_rate", "lactate", "intensive_care")


def patients(seed: int = 278) -> list[tuple[object, ...]]:
    """One row a patient, hospital after hospital."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[object, ...]] = []
    for name, (count, mean_age, gaps, base) in HOSPITALS.items():
        for _ in range(count):
            age = int(np.clip(rng.normal(mean_age, 15), 18, 99))
            male = rng.random() < 0.5
            heart_rate = int(np.clip(rng.normal(88, 18), 40, 190))
            lactate = round(float(rng.lognormal(0.5, 0.5)), 1)
            log_odds = base + 0.06 * (age - 60) + 0.04 * (heart_rate - 88) + 1.2 * (lactate - 1.8) + 0.4 * male
            admitted = rng.random() < 1 / (1 + np.exp(-log_odds))
            shown = "" if rng.random() < gaps else lactate
            sex = "male" if male else "female"
            rows.append((name, len(rows) + 1, age, sex, heart_rate, shown, "yes" if admitted else "no"))
    return rows


def write(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEADER)
        table.writerows(patients())


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("patients.csv"))
