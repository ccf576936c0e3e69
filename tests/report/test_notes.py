"""The remarks of a result: what is said follows from what happened."""

from wardround.report.notes import attack_notes, case_notes, rate_notes, retrain_note

GOOD, BAD = {"method": "global", "rate": 0.1}, {"method": "local", "rate": None}


def test_rates_that_were_taken_left_out_and_not_to_be_chosen() -> None:
    told = rate_notes([0.1, 1.0], {"global": GOOD, "local": BAD}, ["global", "local", "centralized"])
    assert "chosen from 0.1, 1 by the loss" in told[0]
    assert told[0].endswith("Chosen: global 0.1.")
    assert told[1:] == [
        "Left out because training diverged with every rate: local.",
        "Without a learning rate to choose: centralized.",
    ]
    assert len(rate_notes([0.1], {"global": GOOD}, ["global"])) == 1


def test_sites_that_take_turns_are_told_of() -> None:
    assert len(case_notes(in_turn=False)) == 1
    assert "for each site in turn" in case_notes(in_turn=True)[1]


def test_one_site_or_several_that_left() -> None:
    assert retrain_note(["bo"]).endswith("as if it had never taken part.")
    assert retrain_note(["bo", "kenema"]) == "Trained without bo, kenema, as if they had never taken part."


def test_what_an_attacked_study_lacks() -> None:
    assert attack_notes([], private=True) == []
    assert attack_notes([], private=False)[0].startswith("The study has no protection")
    assert attack_notes(["secure_sum"], private=False)[0].startswith("A secure sum hides")
    for few, words in (
        ([], "more were not tried"),
        ([{"patients": 2, "rows": 8, "rebuilt": 3}], "with 2 per site, still 3 of 8."),
        (
            [{"patients": 2, "rows": 8, "rebuilt": 3}, {"patients": 4, "rows": 16, "rebuilt": 0}],
            "with 4 per site, none",
        ),
    ):
        (told,) = attack_notes(["secure_sum"], private=True, one_patient={"rebuilt": 1, "rows": 4}, few_patients=few)
        assert "with one patient per site, 1 of 4 could be reconstructed" in told
        assert words in told
