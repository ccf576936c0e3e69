"""A coordinator that lies to the sites of a private study learns no more than epsilon allows, whatever it asks.

What it tries: invented sites that share the noise, a privacy ledger that was cut, statistics, looks and figures asked
for again, with less noise or of other patients.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.actors import Enough
from tests.support.adversary.noise import LyingCoordinator, private_study
from wardround.cli.audit import examine_log
from wardround.core.components.recipes import recipe_of
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.core.journals.journal_head import head_path
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.release.privacy_budget import budget_of, ledger_findings, ledger_path
from wardround.deploy.site.release.privacy_guard import Promise
from wardround.deploy.trust.audit_log import examine
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.budget import Budget
from wardround.study import assemble
from wardround.study.methods import own_method

NAMES = in_process.NAMES
DELTA = 1e-3
EPSILON = 1.0


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("noise"))


@pytest.fixture(scope="module")
def ended(consortium: Any) -> LyingCoordinator:
    """An honest study, after which the coordinator begins to lie to one site."""
    with LyingCoordinator(consortium, "bo") as liar:
        consortium.conduct(private_study("ended", {"epsilon": EPSILON, "delta": DELTA}))
    return liar


# ---- invented sites ----


def test_invented_sites_do_not_shrink_the_noise(consortium: Any) -> None:
    """9,996 more would leave each site a hundredth of the noise. They are not the approved study's."""
    study = private_study("invented", {"level": "site", "epsilon": EPSILON, "delta": DELTA})
    invented = [*NAMES, *(f"site-{number}" for number in range(9996))]
    told: list[dict[str, Any]] = []
    ask = consortium.ask

    def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
        header, message = decode(body)
        handler = consortium.handlers[site]
        if topic == "prepare":
            told.append(decode(handler.answer(topic, "server", encode({**header, "numbers": invented}, message)))[0])
        if topic == "round":
            recipe = header["algorithm"]
            more = {**recipe, "settings": {**recipe["settings"], "answers": len(invented)}}
            told.append(decode(handler.answer(topic, "server", encode({**header, "algorithm": more}, message)))[0])
        reply: bytes = ask(site, topic, body, within)
        return reply

    consortium.ask = asked
    try:
        consortium.conduct(study)
    finally:
        consortium.ask = ask
    assert {one["status"] for one in told} == {"refused"}
    why = {one["why"] for one in told}
    assert any("is for 3 sites, but the coordinator names 9999" in one for one in why)
    assert any("shared by 9999 sites, but the approved study guarantees only 3" in one for one in why)
    for charge in budget_of(consortium.homes["bo"]).charges():
        if charge.study == study_id(study):
            assert charge.steps[0].noise_multiplier > 3


def test_a_study_that_names_no_sites_gets_no_shared_noise() -> None:
    study = private_study("nameless", {"level": "site", "noise_multiplier": 4.0}, deploy={"sites": []})
    noisy = study.model_copy(update={"privacy": study.privacy.model_copy(update={"answers": 3})})  # type: ignore[union-attr]
    recipe = recipe_of(assemble.build(noisy, own_method(noisy), Task((4,), ("no", "yes"), "ebola")))
    promise = Promise("bo", "nameless", study, lambda: Budget(None))  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="does not say how many sites share the noise"):
        promise.check(recipe, silent=False)


# ---- a ledger that was cut, deleted or put back ----


@pytest.fixture
def ledger(consortium: Any, ended: LyingCoordinator) -> Iterator[Any]:
    """The site's ledger and its head, put back after the test."""
    path = ledger_path(consortium.homes["bo"])
    kept = {one: one.read_bytes() for one in (path, head_path(path))}
    yield path
    for one, content in kept.items():
        one.write_bytes(content)


def cut(path: Any) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def deleted(path: Any) -> None:
    path.unlink()


def deleted_with_its_head(path: Any) -> None:
    path.unlink()
    head_path(path).unlink()


def cut_with_its_head(path: Any) -> None:
    cut(path)
    head_path(path).unlink()


def begun_anew(path: Any) -> None:
    deleted_with_its_head(path)
    Budget(path).debit("another", 1, [Step(1.0, 9.0, 1)])


ROLLED_BACK: list[Callable[[Any], None]] = [cut, deleted, deleted_with_its_head, cut_with_its_head, begun_anew]


@pytest.fixture(scope="module")
def pending(consortium: Any) -> bytes:
    """A request for a round that the site was never sent: it is on the list, and nothing was charged for it."""
    held: list[bytes] = []
    ask = consortium.ask

    def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
        if (site, topic, decode(body)[0]["round"]) == ("bo", "round", 2):
            held.append(body)
            raise Enough
        reply: bytes = ask(site, topic, body, within)
        return reply

    consortium.ask = asked
    try:
        with pytest.raises(Enough):
            consortium.conduct(private_study("pending", {"epsilon": EPSILON, "delta": DELTA}))
    finally:
        consortium.ask = ask
    return held[0]


@pytest.mark.parametrize("change", ROLLED_BACK, ids=lambda one: one.__name__)
def test_nor_does_it_let_out_a_round(
    consortium: Any, pending: bytes, ledger: Any, change: Callable[[Any], None]
) -> None:
    change(ledger)
    consortium.restart("bo")
    told, answer = decode(consortium.handlers["bo"].answer("round", "server", pending))
    assert (told["status"], answer.arrays) == ("refused", {})
    assert "privacy ledger is behind its anchored head" in told["why"]


def test_with_its_ledger_in_place_the_round_is_answered(consortium: Any, pending: bytes) -> None:
    consortium.restart("bo")
    told, answer = decode(consortium.handlers["bo"].answer("round", "server", pending))
    assert (told["status"], set(answer.arrays)) == ("ok", {"update", "weight"})


@pytest.mark.parametrize("change", ROLLED_BACK, ids=lambda one: one.__name__)
def test_a_ledger_behind_its_anchored_head_lets_nothing_out(
    consortium: Any, ended: LyingCoordinator, ledger: Any, change: Callable[[Any], None]
) -> None:
    home = consortium.homes["bo"]
    entries = examine(home.audit_path).entries
    assert ledger_findings(home, entries) == []
    change(ledger)
    consortium.restart("bo")
    told, answer = ended.again("judge", wardround=change.__name__)  # a look that is still on the list
    assert (told["status"], answer.arrays) == ("refused", {})
    assert "privacy ledger is behind its anchored head" in told["why"]
    assert "\n" not in told["why"]
    assert ledger_findings(home, entries)
    assert any("privacy ledger" in one.what for one in examine_log(home.audit_path, None, ())[0].findings)
    with pytest.raises(Refusal, match=r"behind its anchored head.*restore the ledger"):
        budget_of(home).debit("a", 1, [Step(1.0, 9.0, 1)])


def test_a_ledger_from_before_is_taken_once_and_anchored_then(consortium: Any, tmp_path: Any) -> None:
    home = type(consortium.homes["kenema"])(tmp_path / "kenema")
    shutil.copytree(consortium.homes["kenema"].path, home.path)
    for path in (ledger_path(home), head_path(ledger_path(home)), home.audit_path, head_path(home.audit_path)):
        path.unlink(missing_ok=True)
    Budget(ledger_path(home)).debit("old", 1, [Step(1.0, 9.0, 1)])
    assert not head_path(ledger_path(home)).exists()
    budget_of(home).debit("old", 2, [Step(1.0, 9.0, 1)])
    assert len(budget_of(home).charges()) == 2
    cut(ledger_path(home))
    with pytest.raises(Refusal, match="its signed head names 2 debits and the ledger has 1"):
        budget_of(home).charges()


def test_a_head_that_another_key_signed_is_refused(consortium: Any, ended: LyingCoordinator, ledger: Any) -> None:
    other = ledger_path(consortium.homes["kenema"])
    head_path(ledger).write_bytes(head_path(other).read_bytes())
    with pytest.raises(Refusal, match="not signed by this site"):
        budget_of(consortium.homes["bo"]).charges()


# ---- asked again, with less noise, of other patients ----


def test_looks_are_counted_noised_and_of_validation_patients_only(consortium: Any, ended: LyingCoordinator) -> None:
    """Three looks were made; one more is there for a coordinator that died, and then none, whatever the words are."""
    study = private_study("ended", {"epsilon": EPSILON, "delta": DELTA})
    exact = exact_loss(consortium, ended)
    told, answer = ended.again("judge", part="train")
    assert (told["status"], answer.arrays) == ("refused", {})
    told, answer = ended.again("judge", part="test")
    assert told["status"] == "refused"
    first, again = ended.again("judge", wardround="0.1"), ended.again("judge", wardround="0.1")
    assert first[0]["status"] == "ok"
    assert float(first[1].arrays["loss"]) == float(again[1].arrays["loss"]), "the same request is the same answer"
    honest = decode(ended.replies["judge"])[1].arrays
    assert abs(float(honest["loss"]) - exact) > 1e-9
    assert float(honest["loss"]) != float(first[1].arrays["loss"])
    for more in range(2, 50):
        told, answer = ended.again("judge", wardround=f"0.{more}")
        assert (told["status"], answer.arrays) == ("refused", {})
        assert "the approved study has 4, and all were given" in told["why"]
    charges = budget_of(consortium.homes["bo"]).charges()
    paid = [one.steps for one in charges if (one.study, one.level) == (study_id(study), "validation")]
    assert epsilon([step for steps in paid for step in steps], DELTA) <= EPSILON


def exact_loss(consortium: Any, ended: LyingCoordinator) -> float:
    """What the site would tell without noise."""
    header, message = decode(ended.honest["judge"])
    worker = consortium.handlers["bo"]._workers[header["study"]]
    x, y = worker.parts["validation"]
    logits = x @ message.arrays["params"]["dense_0/kernel"] + message.arrays["params"]["dense_0/bias"]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return float(-np.log(shares[np.arange(len(y)), y]).sum())


def test_figures_are_told_once(consortium: Any, ended: LyingCoordinator) -> None:
    assert decode(ended.replies["figures"])[0]["figures"] is not None
    for changes in ({"wardround": "0.1"}, {"part": "validation"}, {"part": "train"}, {"round": 1}):
        told, _ = ended.again("figures", **changes)
        assert told["status"] == "refused", changes
        assert "figures" not in told


def test_exact_statistics_are_refused(ended: LyingCoordinator) -> None:
    """Of the whole table and of training rows, also where the columns are declared and nothing needs to be asked."""
    for name, settings in (
        ("moments", {"columns": ["age"]}),
        ("extremes", {"columns": ["age"]}),
        ("category_counts", {"columns": ["sex"], "most": 10}),
        ("noised_counts", {"columns": ["age"], "noise": 0.0, "delta": 0.5}),
    ):
        recipe = {"kind": "query", "name": name, "settings": settings, "parts": []}
        for on in ("raw", "training"):
            told, answer = ended.again("query", query=recipe, on=on)
            assert (told["status"], answer.arrays) == ("refused", {}), (name, on)


def test_statistics_have_the_sites_own_noise_and_each_is_told_once(consortium: Any) -> None:
    """The coordinator asks for no noise, and for noise that follows from a seed: the site adds its own."""
    study = private_study("statistics", {"noise_multiplier": 0.5, "delta": DELTA}, declared=False, rounds=1)
    told: dict[str, list[tuple[dict[str, Any], Message]]] = {}
    ask = consortium.ask

    def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
        header, message = decode(body)
        if (site, topic) == ("bo", "query") and header["query"]["name"] in ("noised_counts", "noised_moments"):
            settings = {**header["query"]["settings"], "noise": 0.0, "seed": 1}
            silent = {**header, "query": {**header["query"], "settings": settings}}
            first: bytes = ask(site, topic, encode(silent, message), within)
            second = consortium.handlers[site].answer(topic, "server", body)
            told[header["query"]["name"]] = [decode(first), decode(second)]
            return first
        reply: bytes = ask(site, topic, body, within)
        return reply

    consortium.ask = asked
    try:
        consortium.conduct(study)
    finally:
        consortium.ask = ask
    (first, answer), (second, nothing) = told["noised_counts"]
    assert (first["status"], second["status"], nothing.arrays) == ("ok", "refused", {})
    assert "all were given" in second["why"]
    cells = answer.arrays["cells"]
    assert np.count_nonzero(cells % 1) > 0.9 * cells.size, "counts without noise would be whole"
    assert cells.std() > 1
    assert [one[0]["status"] for one in told["noised_moments"]] == ["ok", "refused"]
    charges = [one for one in budget_of(consortium.homes["bo"]).charges() if one.study == study_id(study)]
    paid = [(one.level, one.round, one.steps) for one in charges if one.round <= 0]
    assert paid == [("sample", place, (Step(1.0, 0.5, 1),)) for place in (0, -1)]


@pytest.mark.slow
def test_noised_statistics_prepare_a_study_and_are_counted(consortium: Any) -> None:
    study = private_study("prepared", {"noise_multiplier": 0.5, "delta": DELTA}, declared=False, rounds=1)
    result = consortium.conduct(study)
    for site in NAMES:
        charges = [one for one in budget_of(consortium.homes[site]).charges() if one.study == study_id(study)]
        assert [one.round for one in charges if one.level == "sample"] == [0, -1, 1]
    told = json.loads((consortium.run(study) / "agreement.json").read_bytes())
    columns = {one["name"]: one for one in json.loads(told["preparation"])["columns"]}
    assert columns["sex"]["categories"] == ["female", "male"]
    assert -1e-5 < columns["age"]["low"] < columns["age"]["high"] <= 256
    assert 15 < columns["age"]["fill"] < 50
    steps = result["methods"][0]["meters"]["privacy"]["steps"]["bo"]
    assert [1.0, 0.5, 2] in steps
