"""A site's policy as a file that people edit: how it is first written, read, and changed one key at a time."""

import re
import tomllib
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.settings_files import read_toml, toml_text, validate
from wardround.deploy.site.policy import SAFE, UNSAFE, Policy
from wardround.runs.json_files import write_file

REMEDY = "restore it from a backup, or copy the one of a new folder made with `wardround site init`"
FILE = """\
# What studies may do with the data of this site. What is not allowed here is forbidden; "*" allows everything.
# Change it with an editor or with `wardround site policy set KEY VALUE`; a change takes effect at once.

# Purposes that studies may have. A study states its purpose under [study]; any other is refused.
purposes = {purposes}

# What may run here: components that are installed at this site, by KIND/NAME. KIND/* is all of a kind.
# What is denied stays denied, even where a star would allow it.
components = {components}
components_denied = {components_denied}

# Components of packages other than wardround also need their package here, with its versions: "fed-extras>=1.2,<2".
# What counts is the version that is installed at this site.
packages = {packages}
packages_denied = {packages_denied}

# Columns that studies may read, and columns that none may read. Patterns such as "lab_*" work.
# A column that is not allowed is withheld: for a study it is as if it were not there.
columns = {columns}
columns_denied = {columns_denied}

# Words of free text that no analysis hears of, in whatever case and as genitives: names of patients and of staff. The
# list stays here.
words_denied = {words_denied}

# Nothing is reported about fewer patients than this.
smallest_cell = {smallest_cell}

# Two studies of the same data must not treat fewer patients than this differently ([data.cleaning] changes values and
# leaves out rows): the difference of their answers would be about these alone. 1 allows any difference.
smallest_difference = {smallest_difference}

# A secure sum of fewer sites than this is opened only in studies that add noise ([privacy]).
smallest_sum = {smallest_sum}

# The most epsilon that all approved studies may spend together. Without this line, studies without a formal
# privacy guarantee are allowed.
{epsilon}
# The delta at which epsilon is computed; studies that state theirs at a larger delta are refused.
delta = {delta}

# Other sites of a study: "compared" allows only those whose fingerprints were compared by telephone and pinned with
# `wardround site trust`; "first use" pins the fingerprints of the first study that names them.
partners = {partners}

# How many statistics about one dataset are told at most, of all studies together: each study splits the rows anew,
# so many of them would tell what one does not.
statistics = {statistics}

# Who may approve studies: logins of this machine. A name given with --by does not change who is logged in.
# An empty list allows everybody who may write this folder.
approvers = {approvers}

# Before a study is approved you are shown what of your data does not fit it. "own" keeps this here; "told" also tells
# the coordinator which columns that the study names your table lacks or this policy does not allow (names, no rows).
mismatches = {mismatches}

# The last day on which this policy allows anything.
expires = {expires}
"""


def first_policy(purposes: Sequence[str] = (), *, today: date | None = None) -> Policy:
    """What `init` writes: installed components of safe kinds, no purpose and no column yet, for a year."""
    until = (today or clock.today()) + timedelta(days=365)
    return Policy(purposes=list(purposes), components=installed_components(), expires=until)


def installed_components() -> list[str]:
    from wardround.engine import registry  # loads JAX

    names = {kind: registry.own_components(kind) for kind in SAFE}
    return [f"{kind}/{name}" for kind in SAFE for name in sorted(names[kind]) if f"{kind}/{name}" not in UNSAFE]


def policy_text(policy: Policy) -> str:
    words = {key: lines_of(value) for key, value in policy.model_dump().items() if key != "epsilon"}
    cap = "# epsilon = 3.0" if policy.epsilon is None else f"epsilon = {toml_text(policy.epsilon)}"
    return FILE.format(**words, epsilon=cap)


def lines_of(value: Any) -> str:
    """Long lists one entry a line, so that an editor can comment single ones out."""
    if isinstance(value, list) and len(value) > 6:
        return "[\n" + "".join(f"    {toml_text(one)},\n" for one in value) + "]"
    return toml_text(value)


def read_policy(path: Path) -> Policy:
    return read_toml(path, Policy, REMEDY)


def set_policy(path: Path, key: str, value: str) -> Policy:
    """Change one key in the file and nothing else, so that comments stay; refuses what would be no policy."""
    from wardround.engine.registry import suggest_name

    if key not in Policy.model_fields:
        known = tuple(Policy.model_fields)
        raise Refusal(f"the policy has no key '{key}'", where=str(path), remedy=suggest_name(key, known))
    before = read_policy(path)
    meant = parse_value(key, value)
    policy = validate({**before.model_dump(), key: meant}, Policy, str(path))
    text = replace_value(path.read_text(encoding="utf-8"), key, getattr(policy, key))
    if validate(tomllib.loads(text), Policy, str(path)) != policy:
        raise Refusal(
            f"'{key}' cannot be changed without changing other lines", where=str(path), remedy="use an editor"
        )
    write_file(path, text.encode())
    return policy


def parse_value(key: str, value: str) -> Any:
    """A value of the command line in the key's own type: lists by commas, "none" for no epsilon."""
    sort = Policy.model_fields[key].annotation
    if isinstance(getattr(Policy(), key), list):
        # The comma of fed-extras>=1.2,<2 stays within it.
        return [word.strip() for word in re.split(r",(?!\s*[<>=!~])", value) if word.strip()]
    if key in ("expires", "partners", "mismatches"):
        return value
    if key == "epsilon" and value == "none":
        return None
    try:
        return int(value) if sort is int else float(value)
    except ValueError:
        number = "a whole number" if sort is int else "a number, or none"
        raise Refusal(f"'{key}' is {number}, not '{value}'", remedy="correct the value") from None


def replace_value(text: str, key: str, value: Any) -> str:
    """The text with another value of a key, which may have taken several lines; a new key goes to the end."""
    lines = text.splitlines(keepends=True)
    new = f"# {key} = 3.0\n" if value is None else f"{key} = {lines_of(value)}\n"
    for first, line in enumerate(lines):
        name, equals, _ = line.lstrip("# ").partition("=")
        if name.strip() != key or not equals or (line.lstrip().startswith("#") and key != "epsilon"):
            continue
        if line.lstrip().startswith("#"):
            return "".join([*lines[:first], new, *lines[first + 1 :]])
        for last in range(first + 1, len(lines) + 1):
            try:
                tomllib.loads("".join(lines[first:last]))
            except tomllib.TOMLDecodeError:
                continue
            return "".join([*lines[:first], new, *lines[last:]])
    return text.rstrip("\n") + f"\n\n{new}"
