"""What the first round over real sites will cost, told before it, and a budget that it does not fit into."""

import pytest

from tests.support.in_process import NAMES, Consortium, study_of
from wardround.core.errors import Refusal

QUANTIZED = [{"name": "quantize", "bits": 2, "smallest": 8}]


def test_a_budget_that_the_first_round_passes_is_refused_before_any_site_trains(tmp_path):
    """The bytes of arrays, as the round's record tells them where the budget is large enough."""
    consortium = Consortium(tmp_path)
    words = {"transforms": QUANTIZED, "deploy": {"sites": list(NAMES)}}
    plenty = study_of("plenty", 1, **words, budget={"bytes": 1e9})
    consortium.conduct(plenty)
    (record,) = consortium.rounds(plenty)
    arrays = sum(record["measures"]["arrays"].values())
    consortium.asked.clear()
    with pytest.raises(Refusal, match=rf"spent before it begins: one round takes {arrays:,}"):
        consortium.conduct(study_of("spent", 3, **words, budget={"bytes": arrays - 1}))
    assert consortium.asked
    assert not [topic for _, topic, _ in consortium.asked if topic in ("begin", "round")]


def test_a_factor_of_a_site_that_is_not_there_is_refused_before_anything_is_offered(tmp_path):
    consortium = Consortium(tmp_path)
    with pytest.raises(Refusal, match=r"[Tt]here is no site called 'Bo'"):
        consortium.conduct(study_of("factors", 1, budget={"grams_co2": 1.0, "sites": {"Bo": 20.0}}))
    assert not consortium.asked
