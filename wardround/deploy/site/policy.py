"""What a site allows: purposes, components, columns, the smallest cell, epsilon, until when. Deny by default.

The policy is the site's own file, policy.toml. Whatever it does not allow is forbidden: an empty or missing list allows
nothing, and "*" has to be said. It is read anew for every request, so a change counts at once, also for a study that
is running. Component names are KIND/NAME, such as algorithm/fed_avg; KIND/* is all of a kind. A component of another
package also needs its package allowed, in the version that is installed here; nothing else of it is ever imported.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from wardround.core import clock
from wardround.core.components.packages import OWN, Package, announcements
from wardround.core.components.recipes import Recipe, names_in
from wardround.deploy.package_versions import ANY, Versions, is_allowed
from wardround.deploy.settings_files import SettingsFile

SAFE = ("algorithm", "aggregator", "model", "transform", "probe", "choice", "query", "analysis")
"""Kinds of components that a study may bring to a site; sources are the site's own affair."""
UNSAFE = frozenset({"algorithm/centralized", "model/from_torch", "model/from_flax"})
"""One would put all rows in one place, the others need code that no study can bring."""
DESCRIBED = ("task", "private")
"""Parts of recipes that describe (the outcome, the noise around an algorithm) and are nothing that runs."""
SMALLEST_CELL = 10
STATISTICS = 200
SMALLEST_SUM = 3
"""Of two sites, each would know the other's answer."""
FOR_PARTNERS = "the choice of partners"
FOR_MONITOR = "the monitor"
TABLES = {FOR_PARTNERS: "[partners]", FOR_MONITOR: "[monitor]"}
"""Where a study says its smallest cell, if not under [data.preparation]."""


def parse_day(value: Any) -> Any:
    """A date, also where somebody wrote it as text."""
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{value!r} is not a date: write it like 2031-12-31") from None


class Policy(SettingsFile):
    """policy.toml; as it stands here it allows nothing."""

    purposes: list[str] = Field(default_factory=list)
    components: list[str] = Field(default_factory=list)
    components_denied: list[str] = Field(default_factory=list)
    packages: list[Versions] = Field(default_factory=list)
    """Packages of others whose components may run, with their versions."""
    packages_denied: list[Versions] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)
    columns_denied: list[str] = Field(default_factory=list)
    words_denied: list[str] = Field(default_factory=list)
    """Words of free text that no analysis hears of: names of patients and of staff."""
    smallest_cell: int = Field(default=SMALLEST_CELL, ge=1)
    smallest_difference: int = Field(default=SMALLEST_CELL, ge=1)
    """Two studies of one dataset may treat so many patients differently, or none; 1 allows any."""
    smallest_sum: int = Field(default=SMALLEST_SUM, ge=SMALLEST_SUM)
    """A secure sum of fewer sites is allowed under [privacy] only: too few others hide an answer."""
    epsilon: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The most that all approved studies together may spend; none: studies without a formal guarantee are allowed."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """The delta at which epsilon is reckoned."""
    partners: Literal["first use", "compared"] = "first use"
    """Whether studies may name partners whose fingerprints were not compared by telephone yet."""
    statistics: int = Field(default=STATISTICS, ge=0)
    """Answers to queries about one dataset, at most, of all studies together."""
    approvers: list[str] = Field(default_factory=list)
    """Logins of this machine that may approve studies, whatever name they give; none: whoever may write this folder."""
    mismatches: Literal["own", "told"] = "own"
    """Who hears before an approval which columns a study names and the data lack: the own administrator, or also the
    coordinator."""
    expires: Annotated[date | None, BeforeValidator(parse_day)] = None
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
    if not is_listed(purpose, policy.purposes):
        told = f"the purpose '{purpose}' is" if purpose else "a study without a purpose is"
        reasons.append(f"{told} not among the policy's purposes ({names_or_none(policy.purposes)})")
    names = components_of(study)
    # What a choice of partners asks, it says itself: it is loaded only where it may be.
    probes, cells = ([], {}) if outside_reasons(policy, names) else for_partners(study)
    reasons += component_reasons(policy, [*names, *probes]) + column_reasons(policy, columns)
    if not section(study, "monitor"):  # which prepares nothing
        cell = section(section(study, "data"), "preparation").get("smallest_cell", 1)
        cells = {"the study's preparation": cell, **cells}
    reasons += cell_reasons(policy, cells)
    reasons += sum_reasons(policy, study)
    reasons += epsilon_reasons(policy, epsilon_of(study), spent) + noise_reasons(policy, study)
    return reasons + recipe_reasons(policy, recipes)


def recipe_reasons(policy: Policy, recipes: Sequence[Recipe], read: Collection[str] | None = None) -> list[str]:
    """The reasons against components that came in a message: names, columns and cells that they tell.

    `read` are the columns that can be read at all; none: any.
    """
    names = [f"{kind}/{name}" for one in recipes for kind, name in names_in(one)]
    columns = [column for one in recipes for column in columns_in(one) if read is None or column in read]
    cells = {f"the query {name}": cell for one in recipes for name, cell in cells_in(one)}
    return component_reasons(policy, names) + column_reasons(policy, columns) + cell_reasons(policy, cells)


def component_reasons(policy: Policy, names: Iterable[str]) -> list[str]:
    found = []
    for name in dict.fromkeys(names):
        package = package_of(name)
        if is_forbidden(name, policy):
            found.append(f"the component {name} is not allowed" + (f" (it comes from {package})" if package else ""))
        elif package is not None and not is_allowed(package, policy.packages, policy.packages_denied):
            found.append(f"the component {name} comes from the package {package}, which is not allowed")
        elif package is not None and (fault := fault_of(name)):  # it may be imported, but does not work
            found.append(f"the component {name} of the package {package} cannot be used: {fault}")
    return found


def outside_reasons(policy: Policy, names: Iterable[str]) -> list[str]:
    """The reasons against components of other packages: while there are any, none of them is imported."""
    return component_reasons(policy, [name for name in names if package_of(name) is not None])


def package_of(name: str) -> Package | None:
    """The other package that brings a component KIND/NAME, as it is installed here; none for ours and unknown ones."""
    kind, _, own = name.partition("/")
    if not any((one.kind, one.name) == (kind, own) for one in announcements()):
        return None
    from wardround.engine import registry  # loads JAX

    found = registry.package_of(kind, own)
    return None if found == OWN else found


def fault_of(name: str) -> str:
    from wardround.engine import registry  # loads JAX

    kind, _, own = name.partition("/")
    return registry.fault_of(kind, own)


def column_reasons(policy: Policy, columns: Iterable[str]) -> list[str]:
    return [f"column '{one}' is not allowed" for one in dict.fromkeys(columns) if not is_column_allowed(one, policy)]


def expiry_reasons(policy: Policy, today: date) -> list[str]:
    if policy.expires is None:
        return ["the policy has no expiry date (expires)"]
    return [f"the policy expired on {policy.expires}"] if today > policy.expires else []


def is_listed(word: str, patterns: Sequence[str]) -> bool:
    """Whether a list allows a word, in any case; an empty word only passes where everything does."""
    folded = " ".join(word.casefold().split())
    return ANY in patterns or (bool(folded) and folded in {" ".join(one.casefold().split()) for one in patterns})


def is_forbidden(name: str, policy: Policy) -> bool:
    """Whether a component KIND/NAME is not allowed by its name; what is denied stays denied."""
    kind = name.partition("/")[0]
    meant = {ANY, f"{kind}/*", name}
    return kind not in DESCRIBED and (not meant & set(policy.components) or bool(meant & set(policy.components_denied)))


def is_column_allowed(column: str, policy: Policy) -> bool:
    """Patterns such as lab_* are understood; what is denied stays denied."""
    within = [any(fnmatchcase(column, one) for one in many) for many in (policy.columns, policy.columns_denied)]
    return within[0] and not within[1]


def columns_in(recipe: Recipe) -> tuple[str, ...]:
    """The columns that a recipe names."""
    words = dict(recipe.settings)
    columns = words.get("columns", ())
    own = tuple(str(column) for column in columns) if isinstance(columns, tuple | list) else (str(columns),)
    return (*own, *(column for part in recipe.parts for column in columns_in(part)))


def cell_reasons(policy: Policy, cells: Mapping[str, Any]) -> list[str]:
    """Questions that would tell of fewer patients than the smallest cell."""
    return [
        f"{what} reports groups of {cell} patients or more, but the policy's smallest cell is {policy.smallest_cell}"
        f" (in the study: {TABLES.get(what, '[data.preparation]')} smallest_cell)"
        for what, cell in cells.items()
        if not isinstance(cell, int) or cell < policy.smallest_cell
    ]


def cells_in(recipe: Recipe) -> list[tuple[str, Any]]:
    """The smallest cell of every query that has one, said or by default."""
    from wardround.engine.registry import components  # loads JAX

    found = [pair for part in recipe.parts for pair in cells_in(part)]
    if recipe.kind == "query" and recipe.name in components("query"):
        for parameter in components("query")[recipe.name].parameters:
            if parameter.name == "smallest_cell":
                found.append((recipe.name, dict(recipe.settings).get("smallest_cell", parameter.default)))
    return found


def epsilon_reasons(policy: Policy, epsilon: float | None, spent: float) -> list[str]:
    if policy.epsilon is None:
        return []
    if epsilon is None:
        return [f"the policy limits epsilon to {policy.epsilon:g}, but this study gives no such guarantee"]
    if spent + epsilon > policy.epsilon:
        return [f"it would spend an epsilon of {epsilon:g}; {spent:g} of {policy.epsilon:g} is already promised"]
    return []


def sum_reasons(policy: Policy, study: Mapping[str, Any]) -> list[str]:
    """A secure sum without noise of fewer sites than the policy's smallest sum."""
    transforms = study.get("transforms") or []
    summed = any(isinstance(one, Mapping) and one.get("name") == "secure_sum" for one in transforms)
    deploy = section(study, "deploy")
    sites, quorum = deploy.get("sites") or [], deploy.get("quorum")
    fewest = quorum if isinstance(quorum, int) else len(sites) if isinstance(sites, list) else 0
    if not summed or section(study, "privacy") or not fewest or fewest >= policy.smallest_sum:
        return []
    return [
        f"it opens sums of {fewest} sites without noise, but the policy's smallest sum is {policy.smallest_sum}"
        " (add [privacy], or raise [deploy] quorum)"
    ]


def noise_reasons(policy: Policy, study: Mapping[str, Any]) -> list[str]:
    """Noise that hides nothing from the coordinator or is not made for what is told, and an epsilon at a larger delta.

    The coordinator refuses such studies as well; a site does not rely on it.
    """
    privacy = section(study, "privacy")
    if not privacy:
        own = section(study, "analysis")
        return delta_reasons(policy, own.get("delta", 1e-5)) if own.get("epsilon") else []
    reasons = []
    if by := section(study, "data").get("split_by"):
        reasons.append(
            f"its rows are split by '{by}', so that one row can move many others to another part, and the noise of"
            " [privacy] is made for one (remove [data] split_by, and let each patient have one row)"
        )
    if study.get("partners") is not None:
        reasons.append(
            "its choice of partners looks at losses and gradients without the noise of [privacy] (remove [partners], or"
            " choose them in a study of their own)"
        )
    if privacy.get("seeded"):
        reasons.append("its noise would come from the study's seed, which the coordinator knows ([privacy] seeded)")
    return [*reasons, *delta_reasons(policy, privacy.get("delta"))]


def delta_reasons(policy: Policy, delta: Any) -> list[str]:
    if policy.epsilon is not None and isinstance(delta, float) and delta > policy.delta:
        return [f"its epsilon is stated at a delta of {delta:g}, but the policy's at {policy.delta:g}"]
    return []


def epsilon_of(study: Mapping[str, Any]) -> float | None:
    """What the study says it spends; none where it gives no formal guarantee."""
    privacy = section(study, "privacy")
    # Some analyses add noise of their own; an epsilon of 0 there means none.
    epsilon = privacy.get("epsilon") if privacy else section(study, "analysis").get("epsilon") or None
    good = (
        isinstance(epsilon, int | float) and not isinstance(epsilon, bool) and math.isfinite(epsilon) and epsilon >= 0
    )
    return float(epsilon) if good and epsilon is not None else None


def components_of(study: Mapping[str, Any]) -> list[str]:
    """Every component that the study names and a site would run."""
    if section(study, "monitor"):
        return []
    names = [
        f"{kind}/{section(study, kind).get('name', '')}"
        for kind in ("algorithm", "aggregator", "model", "analysis")
        if section(study, kind)
    ]
    transforms = study.get("transforms") or []
    names += [f"transform/{one.get('name', '')}" for one in transforms if isinstance(one, Mapping)]
    metric = section(study, "study").get("metric")
    if metric and package_of(f"metric/{metric}"):
        names.append(f"metric/{metric}")
    partners = section(study, "partners")
    return [*names, f"choice/{partners.get('name', '')}"] if partners else names


def for_partners(study: Mapping[str, Any]) -> tuple[list[str], dict[str, int]]:
    """What a choice of partners, or a monitor, brings to a site: components, and the smallest group it counts."""
    if section(study, "monitor"):
        from wardround.study.monitor_section import QUERY

        return [f"query/{QUERY}"], {FOR_MONITOR: section(study, "monitor").get("smallest_cell", 1)}
    if not section(study, "partners"):
        return [], {}
    from wardround.study.partners import asks_in  # loads JAX

    asks = asks_in(section(study, "partners"))
    names = [f"{one.kind}/{one.name}" for one in (*(probe.recipe for probe in asks.probes), *asks.queries)]
    cells = [cell for one in asks.queries for _, cell in cells_in(one)]
    return names, {FOR_PARTNERS: min(cells)} if cells else {}


def section(study: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = study.get(name)
    return found if isinstance(found, Mapping) else {}


def names_or_none(words: Sequence[str]) -> str:
    return ", ".join(words) if words else "none is allowed yet"
