"""The SQL source against a real PostgreSQL server that these tests start for themselves, and its parts without one."""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import create_engine

from tests.support import mixed_patients, tiny_study
from wardround.core.errors import Refusal
from wardround.data.load import fingerprint_of
from wardround.data.sources import sql as module
from wardround.data.sources.sql import (
    address_of,
    connection_refusal,
    one_statement,
    query_refusal,
    redact_address,
    rows_of,
    sort_rows,
    sql,
)

SECRET = "s3cret@pass/word"
QUOTED = "s3cret%40pass%2Fword"
TABLE = """
CREATE TABLE patients
  (hospital text, age numeric(5,1), pulse integer, smoker boolean, sex text, born date, died integer);
INSERT INTO patients VALUES
  ('0301', 40.5, 80, true, 'f', '1980-01-01', 1), ('0301', NULL, 71, false, 'm', '1990-01-01', 0),
  ('Bo', 61, NULL, NULL, 'f', '1960-05-05', 0), ('Bo', 58, 95, true, NULL, '1966-01-01', 1);
CREATE TABLE secrets (name text);
CREATE ROLE reader LOGIN PASSWORD 's3cret@pass/word';
GRANT SELECT, INSERT ON patients TO reader;
"""


def programs() -> Path | None:
    """Where PostgreSQL's own programs lie; Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    beside = shutil.which("initdb")
    return found[-1].parent if found else Path(beside).resolve().parent if beside else None


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def unprivileged() -> str | None:
    """PostgreSQL refuses to run as root: another user to run it as, if this is root."""
    if os.getuid() != 0:
        return None
    known = {one.pw_name for one in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A private server on a free port of this machine, with passwords asked for."""
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip('psycopg is not installed: pip install "wardround[sql]"')
    at = programs()
    if at is None:
        pytest.skip("PostgreSQL is not installed: `make database` installs it where it can")
    user, number = unprivileged(), free_port()
    home = Path(tempfile.mkdtemp(prefix="wardround-postgresql-"))
    (home / "password").write_text("admin")
    if user:
        shutil.chown(home, user)
        shutil.chown(home / "password", user)
    cluster = [str(at / "initdb"), "-D", str(home / "data"), "-U", "admin", "-A", "scram-sha-256", "-N"]
    subprocess.run(
        [*cluster, f"--pwfile={home / 'password'}", "--locale=C", "-E", "UTF8"],
        user=user,
        cwd=home,
        check=True,
        capture_output=True,
    )
    settings = {"listen_addresses": "127.0.0.1", "fsync": "off", "unix_socket_directories": str(home)}
    command = [str(at / "postgres"), "-D", str(home / "data"), "-p", str(number)]
    command += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    server = subprocess.Popen(command, user=user, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        statements(number, TABLE)
        yield number
    finally:
        server.send_signal(signal.SIGINT)  # ends sessions too, instead of waiting for them
        server.wait(30)
        shutil.rmtree(home, ignore_errors=True)


def statements(port: int, text: str) -> None:
    """Let the administrator say something, as soon as the server is up."""
    import psycopg

    until = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(f"postgresql://admin:admin@127.0.0.1:{port}/postgres", autocommit=True) as connection:
                connection.execute(text)
            return
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@pytest.fixture
def database(port: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The reader's address in the environment, as a hospital would keep it."""
    monkeypatch.setenv("WARDROUND_DB", f"postgresql://reader:{QUOTED}@127.0.0.1:{port}/postgres")
    return port


def refusal(**settings: object) -> str:
    with pytest.raises(Refusal) as caught:
        sql(**{"target": "died", **settings})  # type: ignore[arg-type]
    said = str(caught.value)
    assert "s3cret" not in said
    assert "Traceback" not in said
    assert "\n" not in said
    # Nothing else that is printed on the way to the user may hold it either.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return said


# ---- on a real server ----


def test_rows_and_types_come_as_they_are(database: int) -> None:
    table = sql(url="${WARDROUND_DB}", query="SELECT * FROM patients;", target="died", site="hospital", drop=("born",))
    assert list(table.sites) == ["0301", "Bo"]
    assert table.origin == f"postgresql://127.0.0.1:{database}/postgres"
    old, bo = table.sites["0301"], table.sites["Bo"]
    # Sorted by all columns: 40.5 before the unknown age is a matter of codes (unknown is -1), so look by outcome.
    assert old.set_index("died").loc[1, "age"] == 40.5
    assert pd.isna(old.set_index("died").loc[0, "age"])
    assert sorted(bo["age"]) == [58.0, 61.0]
    assert bo.set_index("died").loc[1, "pulse"] == 95
    assert pd.isna(bo.set_index("died").loc[0, "pulse"])
    assert "born" not in bo


def test_the_order_in_which_rows_lie_changes_nothing(database: int) -> None:
    orders = [
        sql(url="${WARDROUND_DB}", query=f"SELECT * FROM patients ORDER BY age {way}", target="died")
        for way in ("ASC", "DESC")
    ]
    pd.testing.assert_frame_equal(orders[0].sites["all"], orders[1].sites["all"])
    assert fingerprint_of(orders[0]) == fingerprint_of(orders[1])


def test_a_percent_sign_is_only_a_percent_sign(database: int) -> None:
    table = sql(url="${WARDROUND_DB}", query="SELECT age, died FROM patients WHERE hospital LIKE 'B%'", target="died")
    assert len(table.sites["all"]) == 2


def test_only_the_password_may_come_from_the_environment(database: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    url = f"postgresql://reader:${{DB_PASSWORD}}@127.0.0.1:{database}/postgres"
    assert len(sql(url=url, query="TABLE patients", target="died").sites["all"]) == 4


@pytest.mark.parametrize(
    "query",
    [
        "WITH gone AS (INSERT INTO patients VALUES ('x') RETURNING *) SELECT * FROM gone",
        "SELECT set_config('transaction_read_only', 'off', true), died FROM patients FOR UPDATE",
    ],
)
def test_nothing_can_be_changed_although_the_user_may(database: int, query: str) -> None:
    assert "would change the database" in refusal(url="${WARDROUND_DB}", query=query)
    assert len(sql(url="${WARDROUND_DB}", query="TABLE patients", target="died").sites["all"]) == 4


def test_a_slow_query_is_given_up(database: int) -> None:
    said = refusal(url="${WARDROUND_DB}", query="SELECT pg_sleep(30), died FROM patients", timeout=0.2)
    assert "longer than 0.2 s" in said


def test_mistakes_in_the_query(database: int) -> None:
    url = "${WARDROUND_DB}"
    assert 'relation "patient" does not exist' in refusal(url=url, query="SELECT * FROM patient")
    assert 'column "agee" does not exist' in refusal(url=url, query="SELECT agee, died FROM patients")
    assert "syntax error" in refusal(url=url, query="SELECT FROM WHERE")
    assert "may not read" in refusal(url=url, query="SELECT * FROM secrets")
    assert "selects no rows" in refusal(url=url, query="SELECT * FROM patients WHERE age > 200")
    assert "'age' appears twice" in refusal(url=url, query="SELECT age, age, died FROM patients")
    assert "did you mean 'hospital'" in refusal(url=url, query="TABLE patients", site="hospitl")


def test_a_patients_value_is_not_repeated(database: int) -> None:
    # PostgreSQL itself says: invalid input syntax for type integer: "0301" (or "Bo").
    said = refusal(url="${WARDROUND_DB}", query="SELECT (hospital || '!')::int AS age, died FROM patients")
    assert "SQLSTATE 22P02" in said
    assert "0301" not in said
    assert "Bo" not in said


def test_who_and_where_is_wrong(database: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(address: str) -> str:
        monkeypatch.setenv("WARDROUND_DB", address)
        return refusal(url="${WARDROUND_DB}", query="TABLE patients")

    place = f"127.0.0.1:{database}"
    assert "does not accept this user" in said(f"postgresql://reader:s3cret-wrong@{place}/postgres")
    assert "does not accept this user" in said(f"postgresql://nobody:s3cret@{place}/postgres")
    assert "no database of that name" in said(f"postgresql://reader:{QUOTED}@{place}/nowhere")
    assert "cannot be reached" in said(f"postgresql://reader:{QUOTED}@127.0.0.1:{free_port()}/postgres")
    assert "name is not known" in said(f"postgresql://reader:{QUOTED}@nowhere.invalid/postgres")


# ---- without a server ----


def test_addresses_never_hold_passwords_and_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT 1"
    said = refusal(url=f"postgresql://reader:{QUOTED}@db/hospital", query=query)
    assert "holds a password" in said
    assert "${WARDROUND_DB}" in said
    assert "holds a password" in refusal(url=f"postgresql://reader@db/hospital?password={QUOTED}", query=query)
    monkeypatch.delenv("NOT_THERE", raising=False)
    assert "NOT_THERE is not set" in refusal(url="${NOT_THERE}", query=query)
    for value, words in (
        (f"mysql://reader:{QUOTED}@db/hospital", "PostgreSQL databases can be read"),
        (f"s3cret nonsense {QUOTED}", "cannot be read"),
        (f"postgresql://reader:{QUOTED}@db:port/hospital", "cannot be read"),
        (f"postgresql://reader:{QUOTED}@db", "names no database"),
        # An @ that was not quoted would make a part of the password the host, which messages show.
        ("postgresql://reader:a@s3cret@db/hospital", "has an @ too many"),
    ):
        monkeypatch.setenv("WARDROUND_DB", value)
        assert words in refusal(url="${WARDROUND_DB}", query=query), value


def test_what_is_shown_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    address = address_of("postgresql://reader:${PASSWORD}@db.example.org:5433/hospital?sslmode=require")
    assert address.password == SECRET  # quoted on the way in, so nothing of it became host or path
    assert address.host == "db.example.org"
    assert address.drivername == "postgresql+psycopg"
    assert redact_address(address) == "postgresql://db.example.org:5433/hospital"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1; DROP TABLE patients", "more than one statement"),
        ("SELECT 1; COMMIT; DELETE FROM patients", "more than one statement"),
        ("SELECT ';'; SELECT $a$;$a$", "more than one statement"),
        ("DELETE FROM patients", "begins with 'DELETE'"),
        ("/* SELECT */ UPDATE patients SET age = 1", "begins with 'UPDATE'"),
        ("  -- nothing", "is empty"),
    ],
)
def test_a_query_is_one_statement_that_reads(query: str, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        one_statement(query, "here")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1;",
        "select ';' as a -- ; comment\n;",
        "(SELECT E'it\\'s; so') UNION (SELECT 'it''s; so')",
        'WITH a AS (SELECT 1 AS "x;y") TABLE a',
        "/* ; */ VALUES (1), ($tag$ ; $tag$)",
    ],
)
def test_semicolons_in_texts_and_comments_end_nothing(query: str) -> None:
    assert one_statement(query, "here") == query


def test_rows_of_any_database_in_the_order_of_their_values() -> None:
    """SQLite stands in where only the reading of a result matters."""
    with create_engine("sqlite://").connect() as connection:
        connection.exec_driver_sql("CREATE TABLE p (age REAL, sex TEXT)")
        connection.exec_driver_sql("INSERT INTO p VALUES (61, 'm'), (NULL, 'f'), (40.5, 'x%y'), (40.5, 'f')")
        found = rows_of(connection, "SELECT * FROM p WHERE sex NOT LIKE '%z%'", "here")
        # By age as text ("40.5" < "61"), unknown first, then by sex.
        assert found["sex"].tolist() == ["f", "f", "x%y", "m"]
        assert found["age"].tolist()[1:] == [40.5, 40.5, 61.0]
        with pytest.raises(Refusal, match="'age' appears twice"):
            rows_of(connection, "SELECT age, sex, age FROM p", "here")
        with pytest.raises(Refusal, match="selects no rows"):
            rows_of(connection, "SELECT * FROM p WHERE age > 200", "here")


def test_any_shuffle_gives_the_same_rows() -> None:
    frame = pd.DataFrame({"a": [3, 1, 2, 1], "b": ["x", None, "y", "w"], "c": [0.5, None, 0.25, 1.0]})
    for seed in range(5):
        shuffled = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
        pd.testing.assert_frame_equal(sort_rows(shuffled), sort_rows(frame))


def test_a_driver_that_repeats_the_password_is_not_quoted() -> None:
    said = str(connection_refusal("strange failure near 's3cret@pass/word'", "here", SECRET))
    assert "s3cret" not in said
    assert "cannot be reached" in said
    assert "strange failure" in str(connection_refusal("strange failure", "here", SECRET))


def test_only_the_querys_own_words_are_repeated() -> None:
    class Problem(Exception):
        sqlstate = "22P02"

    class Wrapped(Exception):
        orig = Problem('invalid input syntax for type integer: "Kamara, 1957"')

    assert "Kamara" not in str(query_refusal(Wrapped(), 1.0, "here"))


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("psycopg") is not None:
        pytest.skip("psycopg is installed here")
    monkeypatch.setenv("WARDROUND_DB", f"postgresql://reader:{QUOTED}@db/hospital")
    said = refusal(url="${WARDROUND_DB}", query="SELECT 1")
    assert "wardround[sql]" in said
    assert module.CONNECTING > 0


def test_new_patients_are_predicted_from_a_query(
    database: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line with an address: the same predictions as for the same rows in a file, and no password shown."""
    frame = mixed_patients.patients(12)
    frame.to_csv(tmp_path / "patients.csv", index=False)
    words = {"name": "mixed", "seed": 3, "rounds": 1}
    run = mixed_patients.train(mixed_patients.study_of(tmp_path / "patients.csv", study=words), tmp_path / "run")
    query = (
        "SELECT age, pulse / 40.0 AS lactate, CASE sex WHEN 'f' THEN 'female' ELSE 'male' END AS sex, "
        "'01' AS ward, smoker, born FROM patients"
    )
    said = tiny_study.call(
        capsys, "predict", run, "${WARDROUND_DB}", "--query", query, "--keep", "born", "--out", tmp_path / "a.csv"
    )
    assert said.code == 0, said.err
    found = pd.read_csv(tmp_path / "a.csv").set_index("born")
    assert found["missing"].fillna("").to_dict() == {
        "1980-01-01": "",
        "1990-01-01": "age",
        "1960-05-05": "lactate, smoker",
        "1966-01-01": "",
    }
    rows = {
        "age": [40.5, 58.0],
        "lactate": [2.0, 2.375],
        "sex": ["female", "male"],
        "ward": ["01", "01"],
        "smoker": [True, True],
        "born": ["1980-01-01", "1966-01-01"],
    }
    pd.DataFrame(rows).to_csv(tmp_path / "same.csv", index=False)
    tiny_study.call(capsys, "predict", run, tmp_path / "same.csv", "--keep", "born", "--out", tmp_path / "b.csv")
    same = pd.read_csv(tmp_path / "b.csv").set_index("born")
    for born in rows["born"]:
        assert found.loc[born, "probability of ill"] == same.loc[born, "probability of ill"]
    missing = tiny_study.call(capsys, "predict", run, "${WARDROUND_DB}", "--query", "SELECT age FROM patients")
    assert missing.code == 2
    assert "4 of 5 columns are missing" in missing.err
    assert "the query" in missing.err
    assert "s3cret" not in missing.err + said.out
