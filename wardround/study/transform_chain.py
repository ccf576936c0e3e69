"""From the transforms that a study names to one: in their order, with the numbers that it gives sites by name."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from wardround.core.chain import chain
from wardround.core.contracts import Transform
from wardround.engine import registry
from wardround.study.assemble import freeze
from wardround.study.file import Study
from wardround.study.methods import site_settings


def links_of(study: Study, sites: Sequence[str] = ()) -> tuple[Transform, ...]:
    """The transforms one by one, as they are told to the sites; the same words give the same objects.

    `sites` are those of the training, in its order; without, those that the study lists.
    """
    listed, links = sorted(study.deploy.sites), []
    for one in study.transforms:
        component = registry.find("transform", one.name, where="[[transforms]]")
        registry.check_settings(component, one.settings, "[[transforms]]")
        by_site = site_settings(listed, component, one.settings, sites or listed, f"[[transforms]] {one.name}")
        links.append(_link(one.name, freeze({**one.settings, **by_site})))
    return tuple(links)


def transform_of(study: Study, sites: Sequence[str] = ()) -> Transform:
    """All transforms as one; the same words give the same object, so that repeats share compiled programs."""
    return _chained(links_of(study, sites))


@lru_cache(maxsize=64)
def _link(name: str, settings: tuple[tuple[str, Any], ...]) -> Transform:
    component = registry.find("transform", name)
    link: Transform = component.build(where="[[transforms]]", **dict(settings))
    return link


@lru_cache(maxsize=16)
def _chained(links: tuple[Transform, ...]) -> Transform:
    return chain(links)
