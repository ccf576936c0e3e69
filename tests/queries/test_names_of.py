"""Names of rare categories stay at the site, and with noise those that do not stand out."""

import pandas as pd

from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.contracts import Message, Site
from wardround.queries.names_of import names_of


def test_names_of_rare_categories_are_not_told() -> None:
    table = pd.DataFrame({"town": ["Bo"] * 40 + ["Tiny"] * 4, "id": [f"patient {i}" for i in range(44)]})
    message = Message({"columns": pack(["town", "id"])})
    told = names_of(epsilon=0.0, smallest_cell=5, seed=None).ask(message, Site("ward", table))
    assert unpack(told.arrays["names"]) == {"town": ["Bo"], "id": []}
    # With noise a name must also stand out of it: 1 + ln(1 / 2e-6) / 0.2 = 66.6 is more than 40 + 7 standard deviations
    # of nothing (7.05 each would be 49), so the name of 40 patients is held back.
    told = names_of(epsilon=0.2, smallest_cell=5, seed=1).ask(message, Site("ward", table))
    assert unpack(told.arrays["names"]) == {"town": [], "id": []}
