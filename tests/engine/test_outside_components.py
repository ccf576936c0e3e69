"""Components of other packages keep our rules, never replace ours, and harm nobody when they are broken."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax.numpy as jnp
import pytest

from tests.support.outside_package import MEAN, lay, lay_mean, visible
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core.components.packages import OWN, Package
from wardround.core.components.recipes import Recipe, recipe_of
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.registry import faults, find, make_from, names, package_of

GOOD = MEAN.format(name="calm")


@pytest.fixture
def laid(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Lay a package, then be as if Python had been started with it."""
    open_: list[object] = []

    def place(kind: str, name: str, text: str, package: str = "fed-extras", module: str = "") -> None:
        module = module or name
        folder = lay(tmp_path / package, package, "1.2", {module: text}, {f"{kind}.{name}": f"{module}:{name}"})
        one = visible(folder)
        one.__enter__()
        open_.append(one)

    yield place
    for one in reversed(open_):
        one.__exit__(None, None, None)  # type: ignore[attr-defined]


def own_names(kind: str) -> set[str]:
    """Names that stay: what other tests lent goes whenever Python collects it, also between two lines here."""
    return {one for one in names(kind) if not registry.is_lent(kind, one)}


def test_a_sound_one_is_as_good_as_ours(laid: Callable[..., None]) -> None:
    head = "\nfrom wardround.core.bounds import Count\n\nLABEL = 'Calm mean'\n\n\ndef"
    laid("aggregator", "calm", GOOD.replace("calm()", "calm(*, times: Count = 2)").replace("\n\n\ndef", head))
    assert "calm" in names("aggregator")
    assert "calm" not in sys.modules
    one = find("aggregator", "calm")
    assert (one.package, one.label) == (Package("fed-extras", "1.2"), "Calm mean")
    assert one.summary == "The mean of the answers, once more."
    with pytest.raises(Refusal, match=r"'times' must be at least 1, not 0 \(\[aggregator\], aggregator calm\)"):
        one.build(where="[aggregator]", times=0)
    made = one.build(times=3)
    assert recipe_of(made) == Recipe("aggregator", "calm", (("times", 3),))
    total = Message({"update": jnp.float32(6), "weight": jnp.float32(3)})
    again = make_from(recipe_of(made))
    assert (
        again.reduce((), total)[0].arrays == weighted_mean().reduce((), total)[0].arrays == {"update": 2, "weight": 3}
    )
    assert faults() == []
    assert package_of("aggregator", "calm") == one.package
    assert package_of("aggregator", "median") == find("aggregator", "median").package == OWN
    assert package_of("aggregator", "nobodys") is None


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('"""The mean under another name."""', "", "its module has no docstring"),
        ('    """The mean of the answers, once more."""\n', "", "its function has no docstring"),
        ("once more", "x" * 200, "its first line has more than 120 letters"),
        (" -> Aggregator", "", "should be annotated to give Aggregator"),
        (" -> Aggregator", " -> int", "should be annotated to give Aggregator"),
        (" -> Aggregator", " -> 'Nobody'", "its settings cannot be read"),
        ("calm()", "calm(rate: float = 1.0)", "its settings should be keywords"),
        ("calm()", "calm(**rest: float)", "its settings should be keywords"),
        ("calm()", "calm(*, rate=1.0)", "the type of its setting rate is missing"),
        ("calm()", "calm(*, rate: float = 'fast')", "the default of its setting rate is not a number"),
        ("return weighted_mean()", "return None", ""),
        ("from wardround.core", "from wardround.nowhere", "importing calm failed"),
    ],
)
def test_each_broken_rule_is_told_and_only_who_names_it_is_refused(
    laid: Callable[..., None], before: str, after: str, fault: str
) -> None:
    assert before in GOOD
    laid("aggregator", "calm", GOOD.replace(before, after))
    assert find("aggregator", "weighted_mean").build()
    assert "calm" not in sys.modules
    if not fault:  # only making one shows it
        with pytest.raises(Refusal, match=r"The aggregator 'calm' of fed-extras 1\.2 returns no aggregator"):
            find("aggregator", "calm").build()
        return
    assert "calm" not in registry.components("aggregator")
    (told,) = faults()
    assert "aggregator 'calm' of fed-extras 1.2 cannot be used" in told
    assert fault in told
    assert faults("model") == []
    with pytest.raises(
        Refusal, match=r"The aggregator 'calm' of fed-extras 1\.2 cannot be used.*\(\[aggregator\]\)"
    ) as e:
        find("aggregator", "calm", where="[aggregator]")
    assert "uninstall the package fed-extras" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_model_is_no_aggregator(laid: Callable[..., None]) -> None:
    laid("model", "calm", GOOD)
    assert faults() == [
        "the model 'calm' of fed-extras 1.2 cannot be used: its function should be annotated to give Model"
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("aggregator", "median"),
        ("dataset", "csv"),
        ("choice", "fed_avg"),
        ("algorithm", "global"),
        ("metric", "accuracy"),
    ],
)
def test_ours_stay_ours(laid: Callable[..., None], kind: str, name: str) -> None:
    """Also where a study file names two kinds in one place: sources and data sets, algorithms and choices."""
    before = own_names(kind)
    laid(kind, name, MEAN.format(name=name))
    assert own_names(kind) == before
    assert {one for one in registry.components(kind) if not registry.is_lent(kind, one)} == before
    (told,) = faults()
    assert f"wardround has a component called '{name}', which no package can replace" in told
    assert name not in sys.modules or not (sys.modules[name].__file__ or "").endswith(f"fed-extras/{name}.py")
    if name in before:
        assert find(kind, name).package == OWN


def test_a_name_that_two_packages_bring_is_nobodys(tmp_path: Path) -> None:
    one, two = (lay_mean(tmp_path / package, "calm", package=package) for package in ("one", "two"))
    with visible(one, two):
        assert len(faults()) == 2
        with pytest.raises(Refusal, match=r"brought more than once \(one 1\.2, two 1\.2\)"):
            find("aggregator", "calm")
        assert "calm" not in sys.modules


def test_an_unknown_kind_is_told(laid: Callable[..., None]) -> None:
    laid("agregator", "calm", GOOD)
    (told,) = faults()
    assert "there is no kind of component called 'agregator' (there are algorithm, aggregator" in told
    assert package_of("agregator", "calm") == Package("fed-extras", "1.2")
