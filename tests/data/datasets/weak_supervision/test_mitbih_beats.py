"""The beats: the published counts of a recording, and as many of each class as were asked for."""

from wardround.data.datasets.weak_supervision.mitbih_beats import mitbih_beats


def test_counts_of_two_recordings():
    # Record 100 has 2,239 normal beats and 34 others in the database's own table; one of them falls off an edge.
    table = mitbih_beats(most=0, recordings=(100, 208))
    counts = {name: rows["rhythm"].value_counts().to_dict() for name, rows in table.sites.items()}
    assert counts["patient-100"] == {"normal": 2237, "arrhythmia": 34}
    assert counts["patient-208"]["normal"] < 1_600
    few = mitbih_beats(most=20, recordings=(100,)).sites["patient-100"]
    assert few["rhythm"].value_counts().to_dict() == {"normal": 20, "arrhythmia": 20}
    assert len(few.columns) == 145
