"""What a site allows: purposes, components, columns, the smallest cell, epsilon, until when. Deny by default.

The policy is the site's own file, policy.toml. Whatever it does not allow is forbidden: an empty or missing list allows
nothing, and "*" has to be said. It is read anew for every request, so a change counts at once, also for a study that
is running. Component names are KIND/NAME, such as algorithm/fed_avg; KIND/* is all of a kind.
"""

import inspect
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.recipes import Recipe, names_in
from wardround.deploy.settings_files import Words, checked, read_toml, toml_text, write_file

ANY = "*"
SAFE = ("algorithm", "aggregator", "model", "transform", "probe", "choice", "query")
"""Kinds of components that a study may bring to a site; sources are the site's own affair."""
UNSAFE = frozenset({"algorithm/centralized", "model/from_torch", "model/from_flax"})
"""One would put all rows in one place, the others need code that no study can bring."""
DESCRIBED = ("task", "private")
"""Parts of recipes that describe (the outcome, the noise around an algorithm) and are nothing that runs."""
SMALLEST_CELL = 10
FOR_PARTNERS = "the choice of partners"
REMEDY = "write it anew with `wardround site init`, or restore it from a copy"


def day(value: Any) -> Any:
    """A date, also where somebody wrote it as text."""
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{value!r} is no date: write it like 2031-12-31") from None


class Policy(Words):
    """policy.toml; as it stands here it allows nothing."""

    purposes: list[str] = Field(default_factory=list)
    components: list[str] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)
    columns_denied: list[str] = Field(default_factory=list)
    smallest_cell: int = Field(default=SMALLEST_CELL, ge=1)
    epsilon: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The most that all approved studies together may spend; none: studies without a formal guarantee are allowed."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """The delta at which epsilon is reckoned."""
    expires: Annotated[date | None, BeforeValidator(day)] = None
    """The last day on which the policy allows anything."""


def decide(
    policy: Policy,
    study: Mapping[str, Any],
    columns: Iterable[str] = (),
    recipes: Sequence[Recipe] = (),
    *,
    spent: float = 0.0,
    today: date | None = None,
) -> list[str]:
    """The reasons against a study (its JSON), the columns it reads and the recipes it brings; none: it is allowed.

    `spent` is the epsilon of the studies that were approved before.
    """
    reasons = expiry_reasons(policy, today or clock.today())
    purpose = str(section(study, "study").get("purpose") or "")
    if not allowed(purpose, policy.purposes):
        told = f"the purpose '{purpose}' is" if purpose else "a study that tells no purpose is"
        reasons.append(f"{told} not among the policy's purposes ({listed(policy.purposes)})")
    probes, cells = for_partners(study)
    reasons += component_reasons(policy, [*components_of(study), *probes]) + column_reasons(policy, columns)
    cell = section(section(study, "data"), "preparation").get("smallest_cell", 1)
    reasons += cell_reasons(policy, {"the study's preparation": cell, **cells})
    reasons += epsilon_reasons(policy, epsilon_of(study), spent) + noise_reasons(policy, section(study, "privacy"))
    return reasons + recipe_reasons(policy, recipes)


def recipe_reasons(policy: Policy, recipes: Sequence[Recipe]) -> list[str]:
    """The reasons against components that came in a message: names, columns and cells that they tell."""
    names = [f"{kind}/{name}" for one in recipes for kind, name in names_in(one)]
    columns = [column for one in recipes for column in columns_in(one)]
    cells = {f"the query {name}": cell for one in recipes for name, cell in cells_in(one)}
    return component_reasons(policy, names) + column_reasons(policy, columns) + cell_reasons(policy, cells)


def component_reasons(policy: Policy, names: Iterable[str]) -> list[str]:
    return [f"the component {name} is not allowed" for name in dict.fromkeys(names) if forbidden(name, policy)]


def column_reasons(policy: Policy, columns: Iterable[str]) -> list[str]:
    return [f"column '{one}' is not allowed" for one in dict.fromkeys(columns) if not column_allowed(one, policy)]


def expiry_reasons(policy: Policy, today: date) -> list[str]:
    if policy.expires is None:
        return ["the policy does not say until when it holds (expires)"]
    return [f"the policy ended on {policy.expires}"] if today > policy.expires else []


def allowed(word: str, patterns: Sequence[str]) -> bool:
    """Whether a list allows a word, in any case; an empty word only passes where everything does."""
    folded = " ".join(word.casefold().split())
    return ANY in patterns or (bool(folded) and folded in {" ".join(one.casefold().split()) for one in patterns})


def forbidden(name: str, policy: Policy) -> bool:
    """Whether a component KIND/NAME is not allowed."""
    kind = name.partition("/")[0]
    return kind not in DESCRIBED and not ({ANY, f"{kind}/*", name} & set(policy.components))


def column_allowed(column: str, policy: Policy) -> bool:
    """Patterns such as lab_* are understood; what is denied stays denied."""
    within = [any(fnmatchcase(column, one) for one in many) for many in (policy.columns, policy.columns_denied)]
    return within[0] and not within[1]


def columns_in(recipe: Recipe) -> tuple[str, ...]:
    """The columns that a recipe names."""
    words = dict(recipe.settings)
    said = words.get("columns", ())
    own = tuple(str(column) for column in said) if isinstance(said, tuple | list) else (str(said),)
    return (*own, *(column for part in recipe.parts for column in columns_in(part)))


def cell_reasons(policy: Policy, cells: Mapping[str, Any]) -> list[str]:
    """Questions that would tell of fewer patients than the smallest cell."""
    return [
        f"{what} tells of groups of {cell} or more, and the policy's smallest cell is {policy.smallest_cell}"
        f" (in the study: {'[partners]' if what == FOR_PARTNERS else '[data.preparation]'} smallest_cell)"
        for what, cell in cells.items()
        if not isinstance(cell, int) or cell < policy.smallest_cell
    ]


def cells_in(recipe: Recipe) -> list[tuple[str, Any]]:
    """The smallest cell of every query that has one, said or by default."""
    from wardround.engine.registry import queries  # loads JAX

    found = [pair for part in recipe.parts for pair in cells_in(part)]
    if recipe.kind == "query" and recipe.name in queries():
        parameter = inspect.signature(queries()[recipe.name]).parameters.get("smallest_cell")
        if parameter is not None:
            found.append((recipe.name, dict(recipe.settings).get("smallest_cell", parameter.default)))
    return found


def epsilon_reasons(policy: Policy, epsilon: float | None, spent: float) -> list[str]:
    if policy.epsilon is None:
        return []
    if epsilon is None:
        return [f"the policy allows an epsilon of {policy.epsilon:g}, and this study gives no such guarantee"]
    if spent + epsilon > policy.epsilon:
        return [f"it would spend an epsilon of {epsilon:g}; {spent:g} of {policy.epsilon:g} is spent already"]
    return []


def noise_reasons(policy: Policy, said: Mapping[str, Any]) -> list[str]:
    """Noise that hides nothing from the coordinator, and an epsilon that looks small at a larger delta."""
    reasons = []
    if said.get("seeded"):
        reasons.append("its noise would follow from the study's seed, which the coordinator knows ([privacy] seeded)")
    delta = said.get("delta")
    if policy.epsilon is not None and isinstance(delta, float) and delta > policy.delta:
        reasons.append(f"its epsilon is meant at a delta of {delta:g}, and the policy's at {policy.delta:g}")
    return reasons


def epsilon_of(study: Mapping[str, Any]) -> float | None:
    """What the study says it spends; none where it gives no formal guarantee."""
    said = section(study, "privacy").get("epsilon")
    good = isinstance(said, int | float) and not isinstance(said, bool) and math.isfinite(said) and said >= 0
    return float(said) if good and said is not None else None


def components_of(study: Mapping[str, Any]) -> list[str]:
    """Every component that the study names and a site would run."""
    names = [
        f"{kind}/{section(study, kind).get('name', '')}"
        for kind in ("algorithm", "aggregator", "model")
        if section(study, kind)
    ]
    transforms = study.get("transforms") or []
    names += [f"transform/{one.get('name', '')}" for one in transforms if isinstance(one, Mapping)]
    partners = section(study, "partners")
    return [*names, f"choice/{partners.get('name', '')}"] if partners else names


def for_partners(study: Mapping[str, Any]) -> tuple[list[str], dict[str, int]]:
    """What a choice of partners brings to a site beside itself: components, and the smallest group it counts."""
    if not section(study, "partners"):
        return [], {}
    from wardround.deploy.site.probe_rules import COUNTING, asks_in  # loads JAX

    asks = asks_in(section(study, "partners"))
    names = [f"probe/{one.recipe.name}" for one in asks.probes]
    if asks.counts is None:
        return names, {}
    return [*names, *(f"query/{name}" for name in COUNTING)], {FOR_PARTNERS: asks.counts.smallest_cell}


def section(study: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = study.get(name)
    return found if isinstance(found, Mapping) else {}


def listed(words: Sequence[str]) -> str:
    return ", ".join(words) if words else "none is allowed yet"


# ---- the file ----

FILE = """\
# What studies may do with the data of this site. What is not allowed here is forbidden; "*" allows everything.
# Change it with an editor or with `wardround site policy set KEY VALUE`; a change counts at once.

# For what studies may be. A study tells its purpose under [study]; one that tells another is refused.
purposes = {purposes}

# What may run here: components that are installed at this site, by KIND/NAME. KIND/* is all of a kind.
components = {components}

# Columns that studies may read, and columns that none may read. Patterns such as "lab_*" are understood.
# A column that is not allowed is withheld: for a study it is as if it were not there.
columns = {columns}
columns_denied = {columns_denied}

# Nothing is told about fewer patients than this.
smallest_cell = {smallest_cell}

# The most epsilon that all approved studies may spend together. Without this line, studies without a formal
# privacy guarantee are allowed.
{epsilon}
# The delta at which epsilon is reckoned; studies that promise theirs at a larger one are refused.
delta = {delta}

# The last day on which this policy allows anything.
expires = {expires}
"""


def first_policy(purposes: Sequence[str] = (), *, today: date | None = None) -> Policy:
    """What `init` writes: installed components of safe kinds, no purpose and no column yet, for a year."""
    until = (today or clock.today()) + timedelta(days=365)
    return Policy(purposes=list(purposes), components=installed(), expires=until)


def installed() -> list[str]:
    from wardround.engine import registry  # loads JAX

    names = {kind: registry.queries() if kind == "query" else registry.components(kind) for kind in SAFE}
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
    from wardround.engine.registry import nearest

    if key not in Policy.model_fields:
        known = tuple(Policy.model_fields)
        raise Refusal(f"the policy has no key '{key}'", where=str(path), remedy=nearest(key, known))
    before = read_policy(path)
    meant = meaning(key, value)
    policy = checked({**before.model_dump(), key: meant}, Policy, str(path))
    text = replaced(path.read_text(encoding="utf-8"), key, getattr(policy, key))
    if checked(tomllib.loads(text), Policy, str(path)) != policy:
        raise Refusal(
            f"'{key}' cannot be changed without touching other lines", where=str(path), remedy="use an editor"
        )
    write_file(path, text.encode())
    return policy


def meaning(key: str, value: str) -> Any:
    """A value of the command line in the key's own type: lists by commas, "none" for no epsilon."""
    sort = Policy.model_fields[key].annotation
    if sort == list[str]:
        return [word.strip() for word in value.split(",") if word.strip()]
    if key == "expires":
        return value
    if key == "epsilon" and value == "none":
        return None
    try:
        return int(value) if sort is int else float(value)
    except ValueError:
        number = "a whole number" if sort is int else "a number, or none"
        raise Refusal(f"'{key}' is {number}, not '{value}'", remedy="correct the value") from None


def replaced(text: str, key: str, value: Any) -> str:
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
