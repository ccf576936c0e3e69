"""At a site a component of another package runs only if its name, package and installed version are allowed."""

import sys
from pathlib import Path

import pytest

from tests.support import small_site as small
from tests.support.in_process import Consortium, study_of
from tests.support.outside_package import MEAN, lay, lay_mean, visible
from wardround import __version__
from wardround.core.components.recipes import Recipe, recipe_of, to_json
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site import approvals
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.own_model import own_figures
from wardround.deploy.site.policy import Policy, component_reasons
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.site.study_summary import describe
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import own_method

NAME = "aggregator/calm"
CHOICE = '''"""A choice of partners that asks nothing."""

from wardround.partners.choice import Choice


def patient() -> Choice:
    """Wait, and choose nobody."""
    raise ValueError("made")
'''


YOUDEN = '''"""Youden's index."""

from wardround.evaluate.metrics import METRICS, Metric


def youden() -> Metric:
    """Sensitivity and specificity together, less 1."""
    accuracy = METRICS["balanced_accuracy"]
    return Metric(lambda rows, weights: 2 * accuracy.compute(rows, weights) - 1, accuracy.why, "Youden's index")
'''


def asked() -> Study:
    return small.study(aggregator={"name": "calm"})


def allow(home: SiteHome, packages: str, name: str = NAME) -> None:
    names = [one for one in read_policy(home.policy_path).components if one != name]
    set_policy(home.policy_path, "components", ",".join([*names, name]))
    set_policy(home.policy_path, "packages", packages)


def test_a_new_policy_allows_no_other_package(tmp_path: Path) -> None:
    with visible(lay_mean(tmp_path / "there", "calm")):
        home = small.make(tmp_path)
        policy = read_policy(home.policy_path)
        assert NAME not in policy.components
        assert policy.packages == []
        offer = small.offered(home, asked())
        with pytest.raises(Refusal, match=r"aggregator/calm is not allowed \(it comes from fed-extras 1\.2\)"):
            approvals.approve(home, offer.id, by="ben")
        # Neither a star over names nor a name alone opens it.
        for components in ("*", "algorithm/*,model/*,aggregator/*,query/*"):
            set_policy(home.policy_path, "components", components)
            with pytest.raises(Refusal, match=r"calm comes from the package fed-extras 1\.2, which is not allowed"):
                approvals.approve(home, offer.id, by="ben")
        # And all the while nothing of it ran: neither for the decision nor for the words about the study.
        shown = describe(home, offer)
        assert any("fed-extras 1.2" in reason for reason in shown.against)
        assert shown.facts["outside"] == {NAME: "fed-extras 1.2"}
        assert shown.facts["arrays"] is None
        assert "calm" not in sys.modules


def test_with_package_and_version_allowed_it_is_approved_described_and_runs(tmp_path: Path) -> None:
    with visible(lay_mean(tmp_path / "there", "calm")):
        home = small.make(tmp_path)
        allow(home, "fed-extras>=1.2,<2")
        assert read_policy(home.policy_path).packages == ["fed-extras>=1.2,<2"]
        offer = small.offered(home, asked())
        shown = describe(home, offer)
        assert shown.against == ()
        text = dict(shown.parts)["What runs here"]
        assert text[1] == "From other packages installed here: aggregator/calm from the package fed-extras 1.2."
        assert shown.facts["arrays"] == {"update": 10, "weight": 1}
        approvals.approve(home, offer.id, by="ben")
        office = HomeAccess(home)
        recipe = recipe_of(assemble.build(asked(), own_method(asked()), Task((4,), ("0", "1"), "outcome")))
        assert Recipe("aggregator", "calm") in recipe.parts
        office.allow(offer.id, recipe)
        # Taken off the list, it is refused at the next request, in the words of the policy.
        set_policy(home.policy_path, "packages_denied", "fed-extras==1.2")
        state, why = office.state(offer.id)
        assert state == "denied"
        assert "comes from the package fed-extras 1.2, which is not allowed" in why
        with pytest.raises(Refusal, match=r"not approved.*fed-extras 1\.2"):
            office.allow(offer.id, recipe)


def test_the_version_installed_at_the_site_counts(tmp_path: Path) -> None:
    """Approved with 1.2 installed; then the site is started again with 1.3, which the policy does not allow."""
    home = small.make(tmp_path)
    with visible(lay_mean(tmp_path / "old", "calm")):
        allow(home, "fed-extras==1.2")
        offer = small.offered(home, asked())
        approvals.approve(home, offer.id, by="ben")
        assert HomeAccess(home).state(offer.id) == ("ok", "")
    with visible(lay_mean(tmp_path / "new", "calm", "1.3")):
        assert HomeAccess(home).state(offer.id)[0] == "denied"
        assert "calm" not in sys.modules


def test_a_request_cannot_bring_what_is_not_allowed(tmp_path: Path) -> None:
    """A coordinator names an installed component of another package in place of the approved one."""
    with visible(lay_mean(tmp_path / "there", "calm")):
        home = small.make(tmp_path)
        offer = small.offered(home)
        approvals.approve(home, offer.id, by="ben")
        query = to_json(Recipe("query", "cards", (), (Recipe("aggregator", "calm"),)))
        header = {"protocol": 1, "wardround": __version__, "study": offer.id, "nonce": "ab", "round": 0}
        asks = encode({**header, "query": query, "on": "raw"}, Message({}))
        reply, _ = decode(RequestHandler(HomeAccess(home)).answer("query", "server", asks))
        assert reply["status"] == "refused"
        assert "aggregator/calm is not allowed" in reply["why"]
        assert "calm" not in sys.modules


def test_a_choice_of_partners_is_not_asked_what_it_asks_before_it_is_allowed(tmp_path: Path) -> None:
    folder = lay(tmp_path / "there", "fed-extras", "1.2", {"patient": CHOICE}, {"choice.patient": "patient:patient"})
    with visible(folder):
        home = small.make(tmp_path)
        offer = small.offered(home, small.study(study={"user": "freetown"}, partners={"name": "patient"}))
        assert any("choice/patient is not allowed" in one for one in describe(home, offer).against)
        assert "patient" not in sys.modules
        allow(home, "fed-extras", "choice/patient")
        with pytest.raises(ValueError, match="made"):  # now it is
            describe(home, offer)


def test_a_broken_one_is_told_to_who_approves(tmp_path: Path) -> None:
    text = MEAN.format(name="calm").replace('"""The mean under another name."""', "")
    with visible(lay(tmp_path / "there", "fed-extras", "1.2", {"calm": text}, {"aggregator.calm": "calm:calm"})):
        home = small.make(tmp_path)
        allow(home, "fed-extras")
        offer = small.offered(home, asked())
        with pytest.raises(Refusal, match=r"fed-extras 1\.2 cannot be used: its module has no docstring"):
            approvals.approve(home, offer.id, by="ben")
        # Studies that do not name it are as before.
        other = small.offered(home)
        assert describe(home, other).against == ()
        approvals.approve(home, other.id, by="ben")


def test_ours_can_be_denied_by_name_but_not_by_package(tmp_path: Path) -> None:
    policy = Policy(components=["*"], components_denied=["algorithm/scaffold", "model/*"], packages_denied=["*"])
    assert component_reasons(policy, ["algorithm/fed_avg"]) == []
    told = component_reasons(policy, ["algorithm/scaffold", "model/mlp"])
    assert told == ["the component algorithm/scaffold is not allowed", "the component model/mlp is not allowed"]
    with visible(lay_mean(tmp_path, "calm")):
        assert "not allowed" in component_reasons(policy, [NAME])[0]


def test_a_word_that_is_no_package_is_refused(tmp_path: Path) -> None:
    home = small.make(tmp_path)
    with pytest.raises(Refusal, match=r"is not a package: write it like fed-extras>=1\.2,<2"):
        set_policy(home.policy_path, "packages", "fed extras")
    set_policy(home.policy_path, "packages", "one>=1, <2, two, three!=1.5,<=2")
    assert read_policy(home.policy_path).packages == ["one>=1, <2", "two", "three!=1.5,<=2"]


def test_real_sites_train_and_measure_with_components_of_other_packages(tmp_path: Path) -> None:
    """The mean under another name gives the mean's model; a metric runs at a site only if it is allowed there."""
    entries = {"aggregator.calm": "calm:calm", "metric.youden": "youden:youden"}
    modules = {"calm": MEAN.format(name="calm"), "youden": YOUDEN}
    with visible(lay(tmp_path / "there", "fed-extras", "1.2", modules, entries)):
        consortium = Consortium(tmp_path)
        for home in consortium.homes.values():
            allow(home, "fed-extras==1.2")
        theirs = study_of("theirs", aggregator={"name": "calm"}, study={"metric": "youden"})
        offer = small.offered(consortium.homes["bo"], theirs)
        with pytest.raises(Refusal, match=r"metric/youden is not allowed \(it comes from fed-extras 1\.2\)"):
            approvals.approve(consortium.homes["bo"], offer.id, by="ben")
        assert "youden" not in sys.modules
        for home in consortium.homes.values():
            allow(home, "fed-extras==1.2", "metric/youden")
        told = consortium.until_done(theirs)
        assert told["metric"] == "youden"
        for site, home in consortium.homes.items():
            figures = own_figures(home.folder(study_id(theirs)))["figures"]
            assert figures["youden"]["value"] == pytest.approx(2 * figures["balanced_accuracy"]["value"] - 1)
            assert "youden" in told["methods"][0]["scores"]["sites"][site]
        ours = study_of("ours")
        consortium.until_done(ours)
        assert consortium.model(theirs) == consortium.model(ours)
