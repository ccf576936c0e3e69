"""Patients' rows from the hospital's own PostgreSQL, by one query that only reads. Nothing is copied to disk.

The address names the password's place, never the password: `url = "${WARDROUND_DB}"` is read from the environment, or
leave the password to libpq (PGPASSWORD, ~/.pgpass). The query runs in a read-only transaction with a time limit; give
the database user no more than the right to select all the same. A database promises no order of rows, so they are put
in the order of their values: the same rows are split the same way whenever they are read.
Needs the extra wardround[sql] (SQLAlchemy and psycopg). Costs one pass over the result, which must fit into memory.
"""

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from wardround.core.bounds import Positive
from wardround.core.errors import Refusal
from wardround.data.assembly import MissingSite, assemble_table
from wardround.data.table import Kind, Table
from wardround.queries.columns import as_text

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
DRIVERS = ("postgresql", "postgres", "postgresql+psycopg")
SECRET = ("password", "sslpassword", "passfile")
"""Parameters of an address that would tell a password, or where it lies."""
ASIDE = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(\w*)\$.*?\$\1\$ | --[^\n]* | /\*.*?\*/""",
    re.VERBOSE | re.DOTALL,
)
"""Texts, quoted names and comments, in which a semicolon ends nothing."""
CONNECTING = 10
"""Seconds in which a server must answer at all."""
REASONS = (
    (r"password|authentication|pg_hba|role .* does not exist", "the database does not accept this user", "access"),
    (r"database .* does not exist", "the server has no database of that name", "name"),
    (r"translate host name|name or service not known|resolve", "the server's name is not known here", "name"),
    (r"ssl|certificate", "the encrypted connection to the database cannot be made", "encryption"),
)
REMEDIES = {
    "access": "check the user and the password in the environment, and that the server lets this machine in",
    "name": "correct the address",
    "encryption": "check sslmode and sslrootcert in the address, or ask whoever runs the server",
}


def sql(
    *,
    url: str,
    query: str,
    target: str,
    site: str = "",
    drop: tuple[str, ...] = (),
    task: Kind | None = None,
    positive: str | None = None,
    groups: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing_site: MissingSite = "refuse",
    timeout: Positive = 300.0,
) -> Table:
    """What a query selects from a PostgreSQL database; url = "${WARDROUND_DB}" keeps the password out of files."""
    address = address_of(url)
    origin = redact_address(address)
    frame = read(engine_for(address), one_statement(query, origin), timeout, origin, address.password)
    return assemble_table(
        frame,
        origin=origin,
        target=target,
        site=site,
        drop=drop,
        task=task,
        positive=positive,
        groups=groups,
        categories=categories,
        missing_site=missing_site,
    )


# ---- the address ----


def address_of(url: str) -> "URL":
    """The address with what the environment holds put in; what goes wrong is told without a word of it."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        # What the file itself says, with nothing but a 0 where the environment fills in.
        given = make_url("postgresql://" if VARIABLE.fullmatch(url) else VARIABLE.sub("0", url))
        whole = make_url(fill_environment(url))
    except (ArgumentError, ValueError):
        raise Refusal(
            "the address of the database cannot be read",
            where="url",
            remedy="write postgresql://USER@HOST:PORT/DATABASE, or name a variable that holds it: ${WARDROUND_DB}",
        ) from None
    if given.password not in (None, "", "0") or any(word in given.query for word in SECRET):
        raise Refusal(
            "the address holds a password, and addresses are kept in study files and manifests",
            where="url",
            remedy='put the whole address into the environment and write url = "${WARDROUND_DB}"',
        )
    if whole.drivername not in DRIVERS:
        raise Refusal(
            "only PostgreSQL databases can be read", where="url", remedy="begin the address with postgresql://"
        )
    if not whole.database or "@" in (whole.host or ""):
        lacks = "names no database" if not whole.database else "has an @ too many"
        raise Refusal(
            f"the address {lacks}",
            where="url",
            remedy="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and in a password %40 for @, %2F for /",
        )
    return whole.set(drivername="postgresql+psycopg")


def fill_environment(url: str) -> str:
    """With ${NAME} replaced by what the environment holds; inside an address, quoted as addresses need it."""

    def value(found: "re.Match[str]") -> str:
        name = found[1]
        if not os.environ.get(name):
            raise Refusal(
                f"the environment variable {name} is not set",
                where="url",
                remedy=f"set {name} where wardround is started, such as {name}=postgresql://USER:PASSWORD@HOST/DATABASE",
            )
        return os.environ[name] if found[0] == url else quote(os.environ[name], safe="")

    return VARIABLE.sub(value, url)


def redact_address(address: "URL") -> str:
    """Where the rows come from, for messages and reports: no user, no password, no parameters."""
    port = f":{address.port}" if address.port else ""
    return f"postgresql://{address.host or 'localhost'}{port}/{address.database}"


def engine_for(address: "URL") -> "Engine":
    from sqlalchemy import NullPool, create_engine

    try:
        return create_engine(address, poolclass=NullPool, connect_args={"connect_timeout": CONNECTING})
    except ImportError:
        raise Refusal(
            "the driver for PostgreSQL (psycopg) is not installed",
            where="source sql",
            remedy='install it with: pip install "wardround[sql]"',
        ) from None


# ---- the question ----


def one_statement(query: str, origin: str) -> str:
    """The query, if it is a single one that reads: a second one could end the read-only transaction."""
    bare = ASIDE.sub(" ", query).strip().rstrip(";").rstrip()
    if ";" in bare:
        raise Refusal("the query has more than one statement", where=origin, remedy="leave one, which selects")
    words = bare.replace("(", " ").split(maxsplit=1)
    if not words or words[0].lower() not in ("select", "with", "table", "values"):
        begins = f"begins with '{words[0]}'" if words else "is empty"
        raise Refusal(f"the query {begins}, so it reads no rows", where=origin, remedy="begin it with SELECT or WITH")
    return query


def read(engine: "Engine", query: str, timeout: float, origin: str, password: Any = None) -> pd.DataFrame:
    """All rows that the query selects, in a transaction that can change nothing."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        connection = engine.connect()
    except SQLAlchemyError as error:
        raise connection_refusal(str(getattr(error, "orig", None) or ""), origin, str(password or "")) from None
    with connection:
        try:
            # psycopg begins a transaction with the first statement, so this is said inside of it.
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(timeout * 1000))}")
            return rows_of(connection, query, origin)
        except SQLAlchemyError as error:
            raise query_refusal(error, timeout, origin) from None


def rows_of(connection: "Connection", query: str, origin: str) -> pd.DataFrame:
    """The rows as a frame, in the order of their values."""
    # Without parameters a % in the query, as in LIKE 'a%', is only a %.
    result = connection.execution_options(no_parameters=True).exec_driver_sql(query)
    names = [str(column[0]) for column in result.cursor.description or ()] if result.cursor is not None else []
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refusal(
            f"column {twice[0]!r} appears twice in what the query selects",
            where=origin,
            remedy=f"name every column once, such as SELECT a.{twice[0]}, b.{twice[0]} AS other",
        )
    rows = [tuple(row) for row in result.fetchall()] if names else []
    if not rows:
        raise Refusal(
            "the query selects no rows", where=origin, remedy="check its conditions, and what the user may see"
        )
    return sort_rows(pd.DataFrame.from_records(rows, columns=names, coerce_float=True))


def sort_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows sorted by all their columns: the same rows give the same table, however the database dealt them."""
    codes = [pd.factorize(as_text(frame[column]), sort=True)[0] for column in frame.columns]
    return frame.iloc[np.lexsort(codes[::-1])].reset_index(drop=True)


# ---- what goes wrong ----


def connection_refusal(message: str, origin: str, password: str) -> Refusal:
    """Why no connection came about; the driver's words are repeated only as far as they tell no password."""
    # One line, however many of the server's addresses were tried in vain.
    reason = " ".join(message.split())[:300]
    for pattern, what, remedy in REASONS:
        if re.search(pattern, reason, re.IGNORECASE):
            return Refusal(what, where=origin, remedy=REMEDIES[remedy])
    told = f": {reason}" if reason and not (password and password in reason) else ""
    return Refusal(
        f"the database cannot be reached{told}",
        where=origin,
        remedy="check host and port, that the server runs, and that a firewall lets this machine through",
    )


def query_refusal(error: Exception, timeout: float, origin: str) -> Refusal:
    """Why a query got no answer. A patient's value may stand in the database's words: a site tells these to others."""
    problem = getattr(error, "orig", None)
    state = str(getattr(problem, "sqlstate", "") or "")
    lines = str(problem or "").strip().splitlines()
    if state == "57014":
        return Refusal(
            f"the query took longer than {timeout:g} s",
            where=origin,
            remedy="select less, add an index, or allow more with timeout = ...",
        )
    if state == "25006":
        return Refusal("the query would change the database", where=origin, remedy="use one that only selects")
    if state == "42501":
        return Refusal(
            "the database user may not read what the query asks for",
            where=origin,
            remedy="grant it the right to select",
        )
    if state.startswith("42") and lines:  # about the query's own words: tables, columns, syntax
        return Refusal(f"the database does not understand the query: {lines[0]}", where=origin, remedy="correct it")
    kind = f" (SQLSTATE {state})" if state else ""
    return Refusal(
        f"the database could not answer the query{kind}",
        where=origin,
        remedy="run the query by hand to see why; the reason is not repeated here, since it may hold a patient's value",
    )
