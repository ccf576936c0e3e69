"""The indomethacin trial: who gets pancreatitis after an endoscopy of the bile ducts (ERCP), at four centres.

Elmunzer et al., "A Randomized Trial of Rectal Indomethacin to Prevent Post-ERCP Pancreatitis", NEJM 2012; from the R
package medicaldata (MIT). 602 patients (413, 164, 22 and 3 at a centre), 79 with pancreatitis. Needs the folder
los_and_multicentre_small. Left out: the patient's number, and `bleed`, which is known only afterwards. The treatment
(rx) is among the features.
"""

import pandas as pd

from wardround.core.bounds import Count
from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def indo_rct(*, least: Count = 1) -> Table:
    """Pancreatitis after ERCP in a trial at four centres, 602 patients (least: fewest patients of a centre)."""
    path = data_file("los_and_multicentre_small", "indo_rct.csv")
    rows = pd.read_csv(path).drop(columns=["id", "bleed"])
    for column in rows.select_dtypes(exclude="number"):
        # The file writes a code before each word, "1_yes"; "NA_NA" is a gap.
        rows[column] = rows[column].str.split("_", n=1).str[1].replace("NA", None)
    return Table(
        sites=split_by_site(rows, "site", least=least),
        target="outcome",
        origin=path.name,
        task="classification",
        positive="yes",
    )
