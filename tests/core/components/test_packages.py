"""What packages announce is read from their metadata, and nothing of them runs."""

import sys
from pathlib import Path

import pytest

from tests.support.outside_package import lay, lay_mean, visible
from wardround.core.components.packages import OWN, Announcement, Package, announcements, import_factory
from wardround.core.errors import Refusal

MINE = Package("fed-extras", "1.2")


def told() -> list[Announcement]:
    return [one for one in announcements() if one.package != OWN]


def test_a_package_is_read_without_being_imported(tmp_path: Path) -> None:
    entries = {"aggregator.quiet_mean": "quiet_mean:quiet_mean", "model.deep": "extras.models.deep : deep"}
    lay(tmp_path, "fed-extras", "1.2", {"quiet_mean": "raise SystemExit('imported')"}, entries)
    with visible(tmp_path):
        assert told() == [
            Announcement("aggregator", "quiet_mean", MINE, "quiet_mean:quiet_mean"),
            Announcement("model", "deep", MINE, "extras.models.deep : deep"),
        ]
        assert "quiet_mean" not in sys.modules
    assert told() == []


def test_the_first_on_the_path_counts_as_it_does_for_imports(tmp_path: Path) -> None:
    new, old = lay_mean(tmp_path / "new", "calm", "2.0"), lay_mean(tmp_path / "old", "calm", "1.0", "Fed_Extras")
    with visible(new, old):
        assert [one.package.version for one in told()] == ["2.0"]
    with visible(old, new):
        assert [one.package.version for one in told()] == ["1.0"]


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("calm", "calm:calm", "is not KIND.NAME"),
        ("aggregator.Calm", "Calm:Calm", "is not KIND.NAME"),
        ("aggregator.cаlm", "cаlm:cаlm", "is not KIND.NAME"),  # a Cyrillic a
        ("aggregator.calm.mean", "calm:calm", "is not KIND.NAME"),
        ("aggregator.calm", "wardround.aggregators.median:median", "should be a module and a function of its name"),
        ("aggregator.calm", "calm", "should be a module and a function of its name"),
        ("aggregator.calm", "extras.means:calm", "such as package.calm:calm"),
    ],
)
def test_an_announcement_that_breaks_the_rules_is_kept_with_its_fault(
    tmp_path: Path, name: str, value: str, fault: str
) -> None:
    lay(tmp_path, "fed-extras", "1.2", {}, {name: value})
    with visible(tmp_path):
        (one,) = told()
        assert fault in one.fault
        with pytest.raises(Refusal, match=r"KIND\.NAME|function of its name"):
            import_factory(one)


def test_a_package_that_calls_itself_ours_is_found_out(tmp_path: Path) -> None:
    lay_mean(tmp_path, "calm", package="Wardround")
    with visible(tmp_path):
        assert [one.fault for one in announcements()] == ["a package of another calls itself wardround"]


def test_metadata_that_cannot_be_read_are_told_and_harm_nobody(tmp_path: Path) -> None:
    lay_mean(tmp_path / "sound", "calm", package="sound-one")
    broken = lay_mean(tmp_path / "broken", "loud", package="broken-one")
    (broken / "broken_one-1.2.dist-info" / "entry_points.txt").write_text("[wardround.components]\nno equals sign\n")
    with visible(tmp_path / "broken", tmp_path / "sound"):
        first, second = told()
        assert str(first) == "broken-one 1.2"
        assert "cannot be read" in first.fault
        assert (second.name, second.fault) == ("calm", "")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import no_such_module_anywhere", r"Importing calm failed \(ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", r"Importing calm failed \(SystemExit: 3\)"),
        ("raise ValueError('two\\n\\nlines ' + 'x' * 999)", r"\(ValueError: two lines x{1,200}\.\.\.\)"),
        ("def calm(:", r"Importing calm failed \(SyntaxError"),
        ("other = 1", r"AttributeError: module 'calm' has no attribute"),
        ("calm = 1", "holds no function calm of its own"),
        ("from wardround.aggregators.median import median as calm", "holds no function calm of its own"),
    ],
)
def test_what_goes_wrong_in_an_import_is_told_in_a_line(tmp_path: Path, code: str, fault: str) -> None:
    lay(tmp_path, "fed-extras", "1.2", {"calm": code}, {"aggregator.calm": "calm:calm"})
    with visible(tmp_path), pytest.raises(Refusal, match=fault) as found:
        import_factory(told()[0])
    assert "\n" not in str(found.value)


def test_a_package_without_a_name_and_one_that_is_no_text(tmp_path: Path) -> None:
    for name in ("calm", "loud"):
        lay_mean(tmp_path / name, name, package=name)
    (tmp_path / "calm" / "calm-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n")
    (tmp_path / "loud" / "loud-1.2.dist-info" / "entry_points.txt").write_bytes(
        b"[wardround.components]\n\xff = \xfe\n"
    )
    with visible(tmp_path / "calm", tmp_path / "loud"):
        (one,) = told()
        assert one.package == Package("unknown", "unknown")
        with pytest.raises(Refusal, match="is gone now"):
            import_factory(one)


def test_what_a_package_prints_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_mean(tmp_path, "calm")
    (tmp_path / "calm.py").write_text("print('welcome')\n" + (tmp_path / "calm.py").read_text())
    with visible(tmp_path):
        import_factory(told()[0])
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "welcome\n")


def test_a_package_replaced_under_a_running_process_is_not_loaded(tmp_path: Path) -> None:
    """What was decided about is 1.2; the code on disk is another by now."""
    lay_mean(tmp_path, "calm")
    with visible(tmp_path):
        (one,) = told()
        (tmp_path / "fed_extras-1.2.dist-info").rename(tmp_path / "fed_extras-1.3.dist-info")
        metadata = tmp_path / "fed_extras-1.3.dist-info" / "METADATA"
        metadata.write_text(metadata.read_text().replace("1.2", "1.3"))
        with pytest.raises(Refusal, match=r"was 1\.2 when this process began and is 1\.3 now"):
            import_factory(one)
        assert "calm" not in sys.modules
        (metadata.parent / "METADATA").unlink()
        (metadata.parent / "entry_points.txt").unlink()
        metadata.parent.rmdir()
        with pytest.raises(Refusal, match="is gone now"):
            import_factory(one)
