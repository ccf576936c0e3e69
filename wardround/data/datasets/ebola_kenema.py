"""Ebola patients at Kenema Government Hospital, Sierra Leone, 2014: the outcome, or the diagnosis.

Schieffelin et al., "Clinical Illness and Outcomes in Patients with Ebola in Sierra Leone", NEJM 2014; the data behind
Colubri et al., "Transforming Clinical Data into Actionable Prognosis Models", PLOS NTD 2016. 213 patients with very
many gaps; needs the folder ebola_kenema. One pool, to be partitioned.

Target "OUT" (died or discharged): the 87 confirmed patients with a known outcome; age, sex, vital signs, symptoms, the
first blood panel and the first virus load. Target "DIAG" (confirmed or excluded): age, sex and the first blood panel of
the patients who have all three (single values of a panel may lack). Symptoms and virus load were written down for
confirmed patients only, and age, sex and the panel more often for them: such gaps would tell the diagnosis.
"""

from typing import Literal

import numpy as np
import pandas as pd

from wardround.data.folder import data_file
from wardround.data.table import Table

PANEL = (
    *("ALT_1", "Alb_1", "AlkPhos_1", "AST_1", "Ca_1", "Cl_1", "Cr_1", "Glu_1", "K_1", "Na_1"),
    *("Tbili_1", "TCo2_1", "TP_1", "BUN_1"),
)
VITAL = ("TEMP", "PSYST", "PDIAST", "HRATE", "RRATE", "OXSAT")
SYMPTOMS = (
    *("BSTOOL", "PABD", "PJOINT", "PMUSC", "PBACK", "FEVER", "CONJCT", "EDEMA", "RASH", "HEADCH", "STHROAT"),
    *("VOMIT", "COUGH", "DIARR", "WEAK", "DIZZI", "CONF"),
)


def ebola_kenema(*, target: Literal["OUT", "DIAG"] = "OUT") -> Table:
    """Death (or diagnosis) of real Ebola patients at Kenema, Sierra Leone, 2014; one pool."""
    path = data_file("ebola_kenema", "ebola_kenema_2014.csv")
    rows = pd.read_csv(path)
    if target == "OUT":
        rows = rows[(rows["DIAG"] == 1) & rows["OUT"].notna()]
        columns = ["AGE", "GEND", *VITAL, *SYMPTOMS, *PANEL, "PCR_1"]
        words = np.where(rows["OUT"] == 1, "died", "discharged")
        positive = "died"
    else:
        rows = rows[rows[list(PANEL)].notna().any(axis=1) & rows["AGE"].notna() & rows["GEND"].notna()]
        columns = ["AGE", "GEND", *PANEL]
        words = np.where(rows["DIAG"] == 1, "confirmed", "excluded")
        positive = "confirmed"
    pool = rows[columns].assign(**{target: words}).reset_index(drop=True)
    return Table(sites={"all": pool}, target=target, origin=path.name, task="classification", positive=positive)
