"""A coordinator that made thousands of things since still knows how those it keeps were made."""

from pathlib import Path

from tests.support import in_process
from wardround.core.components.recipes import Recipe, remember


def test_a_second_study_with_the_same_words_after_much_else(tmp_path: Path) -> None:
    consortium = in_process.Consortium(tmp_path)
    consortium.conduct(in_process.study_of("first", 1))
    for number in range(5000):
        remember(("another", number), Recipe("query", f"another_{number}"))
    consortium.conduct(in_process.study_of("second", 1))
    assert (consortium.run(in_process.study_of("second", 1)) / "result.json").exists()
