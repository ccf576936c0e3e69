"""`rewards` and `ledger` on a real run: money to the cent, entries that verify, and every change by hand found."""

import json
import shutil
import stat
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_study as tiny
from wardround.cli.app import main

Capture = pytest.CaptureFixture[str]
PARTNERS = ("bo", "kenema", "makeni")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weight Erosion for freetown over four rounds; bo is there in the first two only."""
    folder = tmp_path_factory.mktemp("trained")
    study = tiny.write_study(
        folder,
        study={"user": "freetown"},
        algorithm={"name": "weight_erosion", "p_d": 0.1},
        participation={"present": {"bo": "1-2"}},
    )
    made("run", study, "--out", folder / "run", "--json")
    return folder / "run"


@pytest.fixture(scope="module")
def asked(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `partners` writes it: bo and kenema chosen, makeni withdrew over its share."""
    folder = tmp_path_factory.mktemp("asked") / "partners"
    folder.mkdir()
    shutil.copy(trained / "manifest.json", folder)
    before = json.loads((trained / "result.json").read_text())
    scores = {"bo": {"value": 0.9, "error": 0.1}, "kenema": {"value": 0.4, "error": None}}
    dilution = [
        {"site": "bo", "rows": 18, "row_share": 0.25, "weight_share": None, "limit": 0.5, "over": False},
        {"site": "makeni", "rows": 18, "row_share": 0.25, "weight_share": None, "limit": 0.2, "over": True},
    ]
    result = {
        "kind": "partners",
        "study": before["study"],
        "sites": before["sites"],
        "asking": "freetown",
        "verdict": {"partners": ["bo", "kenema"], "withdrawn": ["makeni"]},
        "measures": [{"name": "evidence", "scores": scores}],
        "dilution": dilution,
    }
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def made(*arguments: object) -> None:
    """The command line, where it must succeed."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert not left.value.code


@pytest.fixture(scope="module")
def written(trained: Path, asked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key of every hospital; the choice, the training and the payment, recorded by everyone concerned: 9 entries."""
    folder = tmp_path_factory.mktemp("written")
    keys, path, paid = folder / "keys", folder / "ledger.jsonl", folder / "paid.json"
    for site in (*tiny.HOSPITALS, "ministry"):
        made("ledger", "key", site, "--keys", keys)
    made("rewards", trained, "--rule", "rounds", "--budget", "1000.00", "--out", paid)
    for site in ("freetown", *PARTNERS):
        made("ledger", "record", asked, "--ledger", path, "--key", keys / f"{site}.key")
    for site in PARTNERS:
        made("ledger", "record", trained, "--ledger", path, "--key", keys / f"{site}.key")
    made("ledger", "record", trained, "--ledger", path, "--key", keys / "freetown.key", "--rewards", paid)
    return folder


@pytest.fixture
def keys(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "keys", tmp_path / "keys"))


@pytest.fixture
def ledger(written: Path, keys: Path, tmp_path: Path) -> Path:
    """A copy of the ledger with its head, to do with as one likes; the statement lies beside it as paid.json."""
    for name in ("ledger.jsonl", "ledger.jsonl.head", "paid.json"):
        shutil.copy(written / name, tmp_path)
    return tmp_path / "ledger.jsonl"


def record(capsys: Capture, run: Path, ledger: Path, key: Path, *more: Any) -> Any:
    return tiny.call(capsys, "ledger", "record", run, "--ledger", ledger, "--key", key, *more)


def refused(said: Any, *words: str) -> None:
    assert said.code == 2, said
    assert "Traceback" not in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.err.startswith("wardround: ")
    assert "Fix: " in said.err
    for word in words:
        assert word in said.err


# What partners earn.


def test_rounds_are_paid_to_the_cent(trained: Path, capsys: Capture) -> None:
    """bo 2, kenema 4 and makeni 4 of 10 rounds; 1000.01 is 100,001 cents: 20,000.2, 40,000.4 and 40,000.4, and the
    cent that is left goes to the largest remainder, of the two equal ones to the first name."""
    said = tiny.call(capsys, "rewards", trained, "--rule", "rounds", "--budget", "1000.01")
    assert said.code == 0
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.out.splitlines() if "│" in line]
    assert cells == [
        ["bo", "2 rounds (1 to 2)", "200.00"],
        ["kenema", "4 rounds (1 to 4)", "400.01"],
        ["makeni", "4 rounds (1 to 4)", "400.00"],
        ["total", "", "1,000.01"],
    ]
    assert "freetown asked for the model, so it pays and is not paid." in said.out


def test_weights_are_those_of_the_rounds_a_site_was_in(trained: Path, capsys: Capture) -> None:
    """Added up here apart, from the lines of rounds.jsonl; each part is within a cent of its exact share."""
    sums: Counter[str] = Counter()
    for line in tiny.recorded(trained):
        for site in line["sites"]:
            sums[site] += line["measures"]["told"]["alpha"][site]
    assert 0 < sums["bo"] < 2
    told = tiny.call(capsys, "rewards", trained, "--rule", "weights", "--budget", "10", "--json").json
    assert told["payer"] == "freetown"
    assert sum(one["cents"] for one in told["payments"]) == 1000
    total = sum(sums[site] for site in PARTNERS)
    for one in told["payments"]:
        assert one["figure"] == pytest.approx(sums[one["site"]], rel=1e-12)
        assert abs(one["cents"] - 1000 * Fraction(sums[one["site"]]) / Fraction(total)) < 1.001


def test_ranks_of_a_choice_of_partners(asked: Path, capsys: Capture) -> None:
    """bo first, kenema second of two: shares 2 and 1 of 3; makeni withdrew."""
    told = tiny.call(capsys, "rewards", asked, "--rule", "rank", "--budget", "3.00", "--json").json
    assert {one["site"]: one["cents"] for one in told["payments"]} == {"bo": 200, "kenema": 100, "makeni": 0}
    assert [one["based_on"] for one in told["payments"]] == [
        "place 1 of 2 (score 0.9 ± 0.1)",
        "place 2 of 2 (score 0.4)",
        "withdrew",
    ]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("-5", "negative (-5.00)"),
        ("-0.01", "negative (-0.01)"),
        ("1,000", "not an amount of money"),
        ("1e3", "not an amount of money"),
        ("0.001", "not an amount of money"),
        ("nan", "not an amount of money"),
        ("", "not an amount of money"),
        ("9" * 5000, "not an amount of money"),
    ],
)
def test_budgets_that_cannot_be(budget: str, words: str, trained: Path, capsys: Capture) -> None:
    refused(tiny.call(capsys, "rewards", trained, "--rule", "rounds", "--budget", budget), words)


def test_what_a_folder_does_not_say_is_refused(trained: Path, asked: Path, tmp_path: Path, capsys: Capture) -> None:
    for folder, rule, words in (
        (trained, "shapley", "`wardround partners STUDY`"),
        (trained, "inclusion", "`wardround partners STUDY`"),
        (asked, "rounds", "`wardround run STUDY`"),
        (trained, "rond", "did you mean 'rounds'?"),
        (tmp_path, "rounds", "not a run folder"),
    ):
        refused(tiny.call(capsys, "rewards", folder, "--rule", rule, "--budget", "1"), words)


def test_a_statement_is_never_written_over(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    command = ("rewards", trained, "--rule", "rounds", "--out", tmp_path / "paid.json", "--budget")
    assert tiny.call(capsys, *command, "10").code == 0
    before = (tmp_path / "paid.json").read_bytes()
    refused(tiny.call(capsys, *command, "20"), "already exists")
    assert (tmp_path / "paid.json").read_bytes() == before
    refused(tiny.call(capsys, *command[:4], "--budget", "1", "--out", tmp_path / "no" / "paid.json"), "No such file")


# Keys.


def test_the_private_key_is_private_and_kept(keys: Path, capsys: Capture) -> None:
    secret = (keys / "bo.key").read_bytes()
    assert stat.S_IMODE((keys / "bo.key").stat().st_mode) == 0o600
    refused(tiny.call(capsys, "ledger", "key", "bo", "--keys", keys), "already has a key")
    (keys / "bo.pem").rename(keys / "kept")
    assert tiny.call(capsys, "ledger", "key", "bo", "--keys", keys).code == 0
    assert (keys / "bo.key").read_bytes() == secret, "an interruption between the two files is gone on with"
    assert (keys / "bo.pem").read_bytes() == (keys / "kept").read_bytes()


@pytest.mark.parametrize("site", ["../bo", "a/b", ".hidden", "", "bo\n", "x" * 101, "a\\b"])
def test_a_name_that_would_leave_the_folder_is_refused(site: str, tmp_path: Path, capsys: Capture) -> None:
    refused(tiny.call(capsys, "ledger", "key", site, "--keys", tmp_path / "keys"), "cannot be used as a file name")
    assert list(tmp_path.iterdir()) == []


# The ledger.


def test_the_diary_tells_what_happened_and_verifies(ledger: Path, keys: Path, capsys: Capture) -> None:
    said = tiny.call(capsys, "ledger", "show", ledger, "--keys", keys)
    assert said.code == 0
    told = [line.split(" UTC  ")[1] for line in said.out.splitlines() if " UTC  " in line]
    assert told[:4] == [
        "freetown chose as partners, best first: bo, kenema; not makeni.",
        "bo agreed to train as a partner with 18 training rows, 25.0% of the training rows, a limit of 50.0%.",
        "kenema agreed to train as a partner with 18 training rows.",
        "makeni withdrew before training with 18 training rows, 25.0% of the training rows, a limit of 20.0%.",
    ]
    assert told[4].startswith("bo took part in 2 rounds (1 to 2) with 18 training rows, weights that add up to 1.")
    assert told[7].startswith("freetown took part in 4 rounds (1 to 4)")
    assert told[8] == "freetown paid 1,000.00 by rounds taken part in: bo 200.00, kenema 400.00, makeni 400.00."
    assert "9 entries by 4 sites. Every entry is as its site signed it, and none is missing." in said.out
    assert tiny.call(capsys, "audit", "verify", ledger, "--keys", keys).code == 0
    without = tiny.call(capsys, "ledger", "show", ledger)
    assert without.code == 0
    assert "the signatures were not checked" in without.out


def test_entries_name_the_study_and_the_files_they_were_made_from(
    ledger: Path, trained: Path, asked: Path, capsys: Capture
) -> None:
    entries = tiny.call(capsys, "ledger", "show", ledger, "--json").json["entries"]
    study = json.loads((trained / "manifest.json").read_text())["study_hash"]
    runs = [
        tiny.call(capsys, "rewards", folder, "--rule", rule, "--budget", "1", "--json").json["run_hash"]
        for folder, rule in ((asked, "rank"), (trained, "rounds"))
    ]
    assert [entry["study"] for entry in entries] == [
        *[f"tiny study:{study} run:{runs[0]}"] * 4,
        *[f"tiny study:{study} run:{runs[1]}"] * 5,
    ]


def test_recording_again_counts_nothing_twice(ledger: Path, trained: Path, keys: Path, capsys: Capture) -> None:
    before = ledger.read_bytes()
    said = record(capsys, trained, ledger, keys / "bo.key")
    assert said.code == 0
    assert "Nothing new" in said.out
    assert ledger.read_bytes() == before


def test_a_run_is_paid_once(ledger: Path, trained: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    """The same again is nothing new; another budget or another rule is refused."""
    before = ledger.read_bytes()
    for rule, budget in (("rounds", "10"), ("weights", "1000")):
        other = tmp_path / f"{rule}.json"
        tiny.call(capsys, "rewards", trained, "--rule", rule, "--budget", budget, "--out", other)
        refused(record(capsys, trained, ledger, keys / "freetown.key", "--rewards", other), "with different numbers")
    again = record(capsys, trained, ledger, keys / "freetown.key", "--rewards", tmp_path / "paid.json")
    assert (again.code, ledger.read_bytes()) == (0, before)


EDITS = {
    "a number": lambda lines: [*lines[:4], lines[4].replace(b'"rounds":2', b'"rounds":4'), *lines[5:]],
    "a payment": lambda lines: [*lines[:8], lines[8].replace(b'"bo":20000', b'"bo":90000')],
    "a name": lambda lines: [lines[0].replace(b'"kenema":2', b'"makeni":2', 1), *lines[1:]],
    "a time": lambda lines: [lines[0], lines[1].replace(b'"time":"2', b'"time":"3'), *lines[2:]],
    "a line deleted": lambda lines: [*lines[:3], *lines[4:]],
    "the first deleted": lambda lines: lines[1:],
    "the last deleted": lambda lines: lines[:-1],
    "two lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a line doubled": lambda lines: [lines[0], *lines],
    "all but the last reversed": lambda lines: [*lines[-2::-1], lines[-1]],
    "emptied": lambda lines: [],
}


@pytest.mark.parametrize("edit", EDITS)
def test_any_change_by_hand_is_found(edit: str, ledger: Path, trained: Path, keys: Path, capsys: Capture) -> None:
    lines = ledger.read_bytes().splitlines(keepends=True)
    changed = EDITS[edit](lines)
    assert changed != lines
    ledger.write_bytes(b"".join(changed))
    verified = tiny.call(capsys, "audit", "verify", ledger, "--keys", keys)
    assert (verified.code, verified.err) == (2, "")
    assert "ledger.jsonl: " in verified.out
    for more in ((), ("--keys", keys)):
        shown = tiny.call(capsys, "ledger", "show", ledger, *more)
        assert shown.code == 2, "also without keys: the chain and the head tell"
        assert "do not rely on it" in shown.out
    refused(record(capsys, trained, ledger, keys / "bo.key"), "nothing was recorded".capitalize())
    assert ledger.read_bytes() == b"".join(changed)


def test_an_entry_in_another_sites_name_is_found_by_its_signature(
    ledger: Path, trained: Path, keys: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Bo's key, moved away from bo.pem and called makeni's, signs in makeni's name: only the signatures tell."""
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(keys / "bo.key", tmp_path / "elsewhere" / "makeni.key")
    fresh = tmp_path / "fresh.jsonl"
    assert record(capsys, trained, fresh, tmp_path / "elsewhere" / "makeni.key").code == 0
    assert tiny.call(capsys, "ledger", "show", fresh).code == 0
    said = tiny.call(capsys, "audit", "verify", fresh, "--keys", keys)
    assert said.code == 2
    assert "the signature is not 'makeni''s" in said.out
    refused(
        record(capsys, trained, fresh, keys / "bo.key", "--site", "makeni"), "this key is not makeni's".capitalize()
    )


def test_rewards_changed_by_hand_or_of_another_run_are_not_recorded(
    trained: Path, asked: Path, keys: Path, tmp_path: Path, capsys: Capture
) -> None:
    paid, path = tmp_path / "paid.json", tmp_path / "ledger.jsonl"
    told = tiny.call(capsys, "rewards", trained, "--rule", "rounds", "--budget", "10", "--out", paid, "--json").json
    assert {one["site"]: one["cents"] for one in told["payments"]} == {"bo": 200, "kenema": 400, "makeni": 400}
    key = keys / "freetown.key"
    refused(record(capsys, asked, path, key, "--rewards", paid), "belong to another run")
    refused(record(capsys, trained, path, keys / "bo.key", "--rewards", paid), "bo cannot sign what was paid")
    refused(record(capsys, trained, path, key, "--rewards", tmp_path / "no.json"), "no such statement")
    for change in ({"cents": 900}, {"site": "lunsar"}):
        payments = [{**told["payments"][0], **change}, *told["payments"][1:]]
        paid.write_text(json.dumps({**told, "payments": payments}))
        refused(record(capsys, trained, path, key, "--rewards", paid), "the run gives bo 2.00")
    paid.write_text(json.dumps({**told, "payments": [*told["payments"], {"site": "lunsar", "cents": 5}]}))
    refused(record(capsys, trained, path, key, "--rewards", paid), "lunsar earns nothing here")
    paid.write_text("{}")
    refused(record(capsys, trained, path, key, "--rewards", paid), "not a statement of rewards")
    assert not path.exists()


def test_who_had_no_part_has_nothing_to_sign(trained: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    said = record(capsys, trained, tmp_path / "ledger.jsonl", keys / "ministry.key")
    refused(said, "ministry is not a site of this study".capitalize())
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_payer_who_is_no_site_signs_where_nobody_asks(keys: Path, tmp_path: Path, capsys: Capture) -> None:
    """FedAvg for everybody: four sites, four rounds each, a quarter of the ministry's money each."""
    run, paid, path = tmp_path / "run", tmp_path / "paid.json", tmp_path / "ledger.jsonl"
    tiny.call(capsys, "run", tiny.write_study(tmp_path), "--out", run)
    said = tiny.call(capsys, "rewards", run, "--rule", "rounds", "--budget", "100", "--out", paid)
    assert said.out.count(" 25.00 │") == 4
    assert "every site can earn" in " ".join(said.out.split())
    refused(record(capsys, run, path, keys / "bo.key", "--rewards", paid), "bo cannot sign what was paid")
    assert record(capsys, run, path, keys / "ministry.key", "--rewards", paid).code == 0
    assert "ministry paid 100.00" in tiny.call(capsys, "ledger", "show", path).out
    assert tiny.call(capsys, "audit", "verify", path, "--keys", keys).code == 0


def test_an_interrupted_record_is_mended(ledger: Path, trained: Path, keys: Path, capsys: Capture) -> None:
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b'{"entry":{"kind"')
    assert tiny.call(capsys, "audit", "verify", ledger, "--keys", keys).code == 2
    refused(record(capsys, trained, ledger, keys / "bo.key"), "`wardround ledger mend`")
    mended = tiny.call(capsys, "ledger", "mend", ledger, "--key", keys / "bo.key")
    assert mended.code == 0
    assert "torn last line of 16 bytes was cut off" in mended.out
    assert ledger.read_bytes() == whole
    assert "nothing was changed" in tiny.call(capsys, "ledger", "mend", ledger, "--key", keys / "bo.key").out
    assert tiny.call(capsys, "audit", "verify", ledger, "--keys", keys).code == 0


def test_names_cannot_write_to_the_terminal(asked: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    """A site whose name would clear the screen and turn the text around, in the table and in the diary."""
    folder, evil = tmp_path / "evil", "\x1b[2Jbo\u202e\n"
    shutil.copytree(asked, folder)
    result = json.loads((folder / "result.json").read_text())
    result["verdict"]["partners"] = [evil]
    result["sites"].append({"name": evil, "train": 5})
    (folder / "result.json").write_text(json.dumps(result))
    record(capsys, folder, tmp_path / "ledger.jsonl", keys / "freetown.key")
    for said in (
        tiny.call(capsys, "ledger", "show", tmp_path / "ledger.jsonl"),
        tiny.call(capsys, "rewards", folder, "--rule", "inclusion", "--budget", "1"),
    ):
        assert said.code == 0
        assert "[2Jbo" in said.out
        assert "\x1b[2J" not in said.out
        assert "\u202e" not in said.out


def test_paths_that_are_no_ledger_or_key(trained: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    refused(tiny.call(capsys, "ledger", "show", tmp_path / "none"), "there is no such ledger".capitalize())
    (tmp_path / "empty").mkdir()
    (tmp_path / "some").write_text("")
    refused(tiny.call(capsys, "ledger", "show", tmp_path / "some", "--keys", tmp_path / "empty"), "no public keys")
    refused(record(capsys, trained, tmp_path / "l", keys / "bo.pem"), "others may read".capitalize())
    (keys / "bo.pem").chmod(0o600)
    refused(record(capsys, trained, tmp_path / "l", keys / "bo.pem"), "no Ed25519 private key")
    refused(record(capsys, trained, tmp_path / "l", keys / "none.key"), "key cannot be read")
