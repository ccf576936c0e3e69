"""Words such as fed-extras>=1.2,<2 mean what pip means by them; what is denied stays denied."""

import pytest

from wardround.core.components.packages import Package
from wardround.deploy.package_versions import check_requirement, is_allowed


@pytest.mark.parametrize(
    ("allowed", "denied", "version", "expected"),
    [
        ([], [], "1.2", False),
        (["*"], [], "1.2", True),
        (["fed-extras"], [], "1.2", True),
        (["Fed_Extras"], [], "1.2", True),
        (["fed-extra"], [], "1.2", False),
        (["fed-extras>=1.2,<2"], [], "1.2", True),
        (["fed-extras>=1.2,<2"], [], "1.10", True),  # ten, not one point one
        (["fed-extras>=1.2,<2"], [], "1.1.9", False),
        (["fed-extras>=1.2,<2"], [], "2.0", False),
        (["fed-extras==1.1", "fed-extras==1.2"], [], "1.2", True),
        (["*"], ["fed-extras"], "1.2", False),
        (["fed-extras"], ["fed-extras==1.2"], "1.2", False),
        (["fed-extras"], ["fed-extras==1.2"], "1.3", True),
        (["fed-extras"], ["*"], "1.3", False),
        # Test versions: 1.3rc1 comes before 1.3.
        (["fed-extras>=1.2"], [], "1.3rc1", False),
        (["fed-extras>=1.3rc1"], [], "1.3rc1", True),
        (["fed-extras"], [], "1.3rc1", True),
        (["fed-extras"], ["fed-extras<=1.3"], "1.3rc1", False),
        (["fed-extras"], ["fed-extras<1.3"], "1.3rc1", True),  # pip leaves 1.3's own test versions out of <1.3
        (["fed-extras"], ["fed-extras>=1.2"], "1.3rc1", False),
        # No version that anybody could compare.
        (["fed-extras"], [], "unknown", True),
        (["fed-extras>=0"], [], "unknown", False),
        (["fed-extras"], ["fed-extras>9"], "unknown", False),
    ],
)
def test_versions(allowed: list[str], denied: list[str], version: str, expected: bool) -> None:
    assert is_allowed(Package("fed-extras", version), allowed, denied) is expected


@pytest.mark.parametrize(
    "word", ["", "fed extras", "fed-extras=1", "-e .", "fed-extras[gpu]", "x @ https://x.org", "x; os_name == 'nt'"]
)
def test_other_words_are_no_packages(word: str) -> None:
    with pytest.raises(ValueError, match=r"is not a package|holds more"):
        check_requirement(word)
    assert check_requirement("fed-extras >=1.2, <2") == "fed-extras >=1.2, <2"
