"""The ways to train that a study names: an algorithm with its settings, for everybody or for one asking site."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, get_args

from wardround.core.bounds import SiteNumbers
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.partners.choice import Rule
from wardround.study.file import Settings, Study, parse_study


class Method(NamedTuple):
    """A way to train that a study compares: an algorithm and its settings, under a name of its own.

    With a `choice` it first chooses partners for the asking site, and then only these train with it.
    """

    name: str
    label: str
    algorithm: str
    settings: tuple[tuple[str, Any], ...]
    choice: str = ""
    choice_settings: tuple[tuple[str, Any], ...] = ()
    rule: Rule = Rule()

    @property
    def for_one_site(self) -> bool:
        """Whether it trains another model for another asking site."""
        component = registry.find("algorithm", self.algorithm)
        return bool(self.choice) or any(parameter.name == "user" for parameter in component.parameters)


def own_method(study: Study) -> Method:
    """The study's [algorithm], with the partners that [partners] chooses where there is one."""
    if study.analysis is not None:
        raise Refusal(
            "the study has an [analysis], which trains no model", where="[analysis]", remedy="use `wardround run`"
        )
    method = method_of(study.algorithm.name, study.algorithm.name, study.algorithm.settings)
    if study.partners is None:
        return method
    return with_choice(method, study.partners.name, study.partners.settings, study.partners.rule)


def compared_methods(study: Study) -> list[Method]:
    """The methods of [compare]; each inherits the study's settings that it knows."""
    assert study.compare is not None
    for name in study.compare.settings:
        if name not in study.compare.methods:
            raise Refusal(
                f"there are settings for '{name}', which is not among the methods",
                where="[compare.settings]",
                remedy=registry.suggest_name(name, tuple(study.compare.methods)),
            )
    methods = [compared_method(study, name, study.compare.settings.get(name, {})) for name in study.compare.methods]
    if len({method.name for method in methods}) < len(methods):
        raise Refusal("a method is named twice", where="[compare] methods", remedy="name each once")
    return methods


def compared_method(study: Study, name: str, own: Settings) -> Method:
    """An algorithm, "global" for the study's own, or a choice of partners who then train as the study says."""
    choices = registry.names("choice")
    if name in choices:
        choice = registry.find("choice", name, where="[compare] methods")
        known = {parameter.name for parameter in choice.parameters} | set(Rule._fields)
        said = study.partners.settings if study.partners and study.partners.name == name else {}
        rule = study.partners.rule._asdict() if study.partners and study.partners.name == name else {}
        settings = {**said, **{key: value for key, value in own.items() if key in known}}
        rule = {**rule, **{key: settings.pop(key) for key in Rule._fields if key in settings}}
        rest = {key: value for key, value in own.items() if key not in known}
        method = method_of(name, study.algorithm.name, {**study.algorithm.settings, **rest})
        return with_choice(method._replace(label=choice.label), name, settings, rule_of(rule))
    # Another setting of an algorithm may have a name of its own: [compare.settings.reptile] algorithm = "meta"
    algorithm = str(own.get("algorithm", study.algorithm.name if name == "global" else name))
    if algorithm not in registry.names("algorithm"):
        known_names = (*registry.names("algorithm"), *choices, "global")
        raise Refusal(
            f"there is no algorithm or choice of partners called '{name}'",
            where="[compare] methods",
            remedy=registry.suggest_name(name, known_names),
        )
    component = registry.find("algorithm", algorithm)
    known = {parameter.name for parameter in component.parameters}
    inherited = {key: value for key, value in study.algorithm.settings.items() if key in known}
    method = method_of(name, algorithm, {**inherited, **{key: own[key] for key in own if key != "algorithm"}})
    return method if "algorithm" not in own else method._replace(label=f"{method.label} [{name}]")


def method_of(name: str, algorithm: str, settings: Settings) -> Method:
    component = registry.find("algorithm", algorithm, where="[algorithm]")
    return Method(name, component.label, algorithm, tuple(sorted(settings.items())))


def with_choice(method: Method, choice: str, settings: Settings, rule: Rule) -> Method:
    component = registry.find("choice", choice, where="[partners]")
    registry.check_settings(component, settings, "[partners]")
    return method._replace(choice=choice, choice_settings=tuple(sorted(settings.items())), rule=rule)


def rule_of(said: Settings) -> Rule:
    by_hand = said.get("by_hand")
    return Rule(said.get("top"), said.get("threshold"), None if by_hand is None else tuple(by_hand))


def asking_site(study: Study, component: registry.Component, sites: Sequence[str]) -> Settings:
    """The number of the site that asks, for a method that trains for one site (its factory has a setting `user`)."""
    if not any(parameter.name == "user" for parameter in component.parameters):
        return {}
    if study.study.user is None:
        raise Refusal(
            f"{component.name} trains a model for one site, and the study does not say which",
            where="[study]",
            remedy=f'add user = "{sites[0]}", or the name of another site' if len(sites) else "add user = ...",
        )
    return {"user": site_number(study.study.user, sites)}


def site_settings(
    listed: Sequence[str], component: registry.Component, settings: Settings, sites: Sequence[str], section: str
) -> Settings:
    """Settings that are given by the sites' names as the component takes them: one number a site, in their order.

    Names that the study lists are known, too, though these sites are not there.
    """
    found = {}
    for parameter in component.parameters:
        said = settings.get(parameter.name)
        if SiteNumbers() in get_args(parameter.annotation) and isinstance(said, Mapping):
            known = tuple(dict.fromkeys([*sites, *listed]))
            for name, number in said.items():
                where = f"{section} {parameter.name}"
                if name not in known:
                    remedy = registry.suggest_name(name, known[:100])
                    raise Refusal(f"there is no site called '{name}'", where=where, remedy=remedy)
                meant = "finite number" if number == inf else "number greater than 0"
                if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < inf:
                    raise Refusal(f"'{name}' must have a {meant}, not {number!r}", where=where, remedy="correct it")
            found[parameter.name] = numbers_by_site(said, sites)
    return found


def without_numbers_of(study: Study, without: Sequence[str]) -> Study:
    """The study with no number that is given for one of these sites by its name, as widths, lines and factors are."""
    words = study.model_dump(mode="json")
    for kind, table in (("algorithm", words["algorithm"]), *(("transform", one) for one in words["transforms"])):
        for parameter in registry.find(kind, table["name"]).parameters:
            said = table.get(parameter.name)
            if SiteNumbers() in get_args(parameter.annotation) and isinstance(said, Mapping):
                table[parameter.name] = {name: number for name, number in said.items() if name not in without}
    if words.get("budget"):
        factors = words["budget"]["sites"]
        words["budget"]["sites"] = {name: factor for name, factor in factors.items() if name not in without}
    return parse_study(words, where="--without")


def numbers_by_site(said: Mapping[str, Any], sites: Sequence[str]) -> tuple[float, ...]:
    """Numbers that are given by name, in the order of the sites; 0 for a site that is not named."""
    return tuple(float(said.get(site, 0.0)) for site in sites)


def site_number(name: str, sites: Sequence[str]) -> int:
    """Where the asking site stands among the sites."""
    if name not in sites:
        raise Refusal(
            f"the asking site '{name}' is not among the sites",
            where="[study] user",
            remedy=registry.suggest_name(name, tuple(sites[:100])),
        )
    return list(sites).index(name)
