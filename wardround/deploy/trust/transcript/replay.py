"""Replays a transcript: whether the published model follows from it, without any patient's row.

The study's words give the algorithm, the seed gives the first model; from then on every state must follow from the one
before and the round's sum, bit for bit. What nobody can check alone is said too: that a sum is the sum of the answers
that stand beside it. Each site can look whether its own answer stands there as it left (`site/transcript_check.py`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.chain import chain, tailored
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Algorithm, Message, Params, Progress, Task, Transform, Tree
from wardround.core.errors import Refusal
from wardround.core.journals.journal_head import head_problems
from wardround.deploy.coordinator.privacy_plan import restore_noise
from wardround.deploy.protocol.robust_choice import rule_of, without_model
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.trust.transcript.entries import (
    Arrays,
    Closing,
    LossEntry,
    Opening,
    Resumption,
    RoundEntry,
    Transcript,
    digest_of,
    leaf_names,
    software,
    words_digest,
)
from wardround.deploy.trust.transcript.handout import TranscriptSource
from wardround.deploy.trust.transcript.signatures import ReplayReport
from wardround.engine.participation import Participation
from wardround.engine.split_round import (
    KEPT,
    combined_shapes,
    conclude_opened,
    conclude_round,
    initial_progress,
    message_of_round,
    row_of,
)
from wardround.study import assemble
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method
from wardround.study.transform_chain import links_of

ROUNDING = 1e-5
"""Functions such as those that draw a normal number differ by less between processors."""
STEPS_BACK = 3
"""Rounds that a coordinator may do again after a crash: it keeps the last two checkpoints."""


class DoesNotFollow(Exception):
    """What is wrong, in words."""


def replay(source: TranscriptSource) -> ReplayReport:
    """Check the chain, then every round; whose signature is under it, the caller checks."""
    report = ReplayReport()
    try:
        check(source, report)
    except DoesNotFollow as found:
        report.problem = str(found)
    except Refusal as refusal:
        report.problem = f"the study in it cannot be put together here: {refusal}"
    return report


def check(source: TranscriptSource, report: ReplayReport) -> None:
    opening, closing = check_form(source.transcript)
    report.study, report.rounds = opening.study, closing.rounds
    report.checked.append(f"{len(source.transcript.entries)} entries, none changed, moved or missing")
    study = study_in(opening)
    if study_id(study) != opening.study:
        raise DoesNotFollow(f"it calls itself a transcript of {opening.study}, and its words are {study_id(study)}")
    work = ServerReplay(source, opening, study)
    published = work.check_rounds(closing, report, replays=work.check_first(report))
    check_stopping(study, closing)
    if published is None:
        why = "the sums were not handed out" if opening.sums else "the coordinator kept hashes only"
        report.unchecked.append(f"that the models follow from the sums: {why}, so nothing was computed again")
    else:
        work.check_last(published, closing, report)
    given = source.model
    if given is not None and digest_of(params_like(work.params, given)) != closing.model:
        raise DoesNotFollow("the model that came with it is not the one that it says was published")
    report.unchecked.append(
        "that a sum is the sum of the answers listed beside it: nobody can see that alone; each site can see whether "
        "its own answer is listed as it left (--home)"
    )
    if study.stopping is not None:
        report.unchecked.append("which round was best: only the coordinator was told the validation losses")
    if study.deploy.second is not None:
        report.unchecked.append(
            "whom the rule chose in each round: only the two servers saw the distances; the second one chose by itself"
        )
    if study.partners is not None:
        report.unchecked.append("how partners were chosen: the transcript begins after the choice")


def study_in(opening: Opening) -> Study:
    try:
        return parse_study(json.loads(opening.words), where="the transcript")
    except (ValueError, RecursionError):
        raise DoesNotFollow("the study in it is not JSON") from None


def check_form(transcript: Transcript) -> tuple[Opening, Closing]:
    """One beginning, one end, a signed head that names it, and between them rounds in their order."""
    if transcript.violations:
        raise DoesNotFollow(f"the transcript was changed: {transcript.violations[0]}")
    opening, closing, head = transcript.opening, transcript.closing, transcript.head
    if opening is None:
        raise DoesNotFollow("the transcript has no beginning")
    if closing is None or head is None:
        raise DoesNotFollow("the transcript has no signed end: training is not finished, or the end was cut off")
    found = head_problems("its signed end", head, transcript.hashes, "transcript", behind="entries were added later")
    if found:
        raise DoesNotFollow(found[0])
    number = 0
    for entry in transcript.entries[1:-1]:
        if isinstance(entry, Opening | Closing):
            raise DoesNotFollow("the transcript begins or ends twice")
        if isinstance(entry, RoundEntry):
            if not number - STEPS_BACK < entry.round <= number + 1:
                raise DoesNotFollow(f"round {entry.round} stands after round {number}")
            number = entry.round
        elif isinstance(entry, LossEntry) and entry.round > number:
            raise DoesNotFollow(f"losses of round {entry.round} stand after round {number}")
    if number != closing.rounds:
        raise DoesNotFollow(f"it ends after round {closing.rounds}, and the last round in it is {number}")
    return opening, closing


@dataclass
class ServerReplay:
    """The server's half of the training, made from the study's words alone."""

    source: TranscriptSource
    opening: Opening
    study: Study
    task: Task = field(init=False)
    algorithm: Algorithm = field(init=False)
    transform: Transform = field(init=False)
    way: Algorithm = field(init=False)
    """The algorithm with messages as the transforms want them for each site."""
    params: Params = field(init=False)
    states: dict[int, Progress] = field(init=False)
    """The last states by the round after which they are; none any more where a sum is missing."""

    def __post_init__(self) -> None:
        opening, said = self.opening, self.opening.task
        self.task = Task(said.shape, said.classes, said.target, said.horizons, said.segmentation)
        noisy = restore_noise(self.study, opening.noise)
        links = links_of(self.study, opening.sites)
        self.transform = chain(links)
        self.algorithm = assemble.build(noisy, own_method(noisy), self.task, opening.sites)
        self.way = tailored(self.algorithm, self.transform)
        self.params = assemble.model_of(self.study, self.task).init(jax.random.key(self.seed))
        self.states = {}
        method = {
            "algorithm": to_json(recipe_of(self.algorithm)),
            "transforms": [to_json(recipe_of(one)) for one in links],
            "seed": self.seed,
        }
        if words_digest(method) != words_digest(opening.method):
            raise DoesNotFollow("the sites were asked for another method than the study's")

    @property
    def seed(self) -> int:
        return self.study.study.seed

    @property
    def opens_means(self) -> bool:
        """Whether two servers opened one weighted mean a round."""
        return self.transform.products_only

    def check_first(self, report: ReplayReport) -> bool:
        """Whether the rounds can be computed from the first model; its last bits may be another processor's."""
        opening = self.opening
        drawn, what = self.params, "the first model is the one of the study's seed"
        if opening.linear != self.algorithm.aggregator.linear:
            raise DoesNotFollow("it says otherwise than the study whether the aggregator sees each answer")
        report.checked.append("the method is the study's")
        if opening.software != software():
            report.remarks.append(f"the coordinator ran {words_of(opening.software)}; here is {words_of(software())}")
        if digest_of(drawn) != opening.model:
            arrays = self.source.sum_of(opening.model)
            if arrays is None and not opening.sums:
                report.unchecked.append(f"that {what}: it did not come with the transcript")
                return False
            found = None if arrays is None else tree_like(jax.eval_shape(lambda: drawn), arrays)
            if found is None or digest_of(found) != opening.model or not is_close(found, drawn):
                raise DoesNotFollow("the model before the first round is not the one of the study's seed")
            self.params, what = found, f"{what}, up to the last bits, which another processor rounds otherwise"
        self.states = {
            0: initial_progress(self.algorithm, self.transform, self.params, len(opening.sites), row_of(self.task))
        }
        if digest_of(self.states[0]) != opening.state:
            raise DoesNotFollow("the state before the first round is not the one of the study's first model")
        report.checked.append(what)
        return True

    def hint(self) -> str:
        """Other software or another processor may round differently."""
        here, there = software(), self.opening.software
        seen = [one.software for one in self.source.transcript.entries if isinstance(one, Resumption)]
        if all(one == here for one in (there, *seen)):
            return ""
        return f" (the coordinator ran {words_of(there)}, which may round otherwise than {words_of(here)} here)"

    def check_rounds(self, closing: Closing, report: ReplayReport, *, replays: bool) -> Progress | None:
        """Every round; gives the state that should have been published, none where it could not be computed."""
        target = closing.rounds if closing.best_round is None else closing.best_round
        cohort = self.cohorts()
        claimed = {0: self.opening.state}
        found: Progress | None = None
        for entry in self.source.transcript.entries:
            if isinstance(entry, RoundEntry):
                check_names(entry, self.opening.sites, cohort)
                claimed[entry.round] = entry.state
                replays = replays and self.replay_round(entry)
                if replays:
                    report.replayed = entry.round
                    found = self.states[entry.round] if entry.round == target else found
            elif isinstance(entry, LossEntry) and replays and entry.round in self.states:
                self.check_losses(entry)
        if claimed.get(target) != closing.state:
            raise DoesNotFollow(f"the published state is not the one after round {target}")
        if replays:
            report.checked.append(
                f"{closing.rounds} rounds computed again from their sums: every model has the same bits"
            )
        return found if replays else None

    def cohorts(self) -> Participation | None:
        """Whom the study asks in which round; not known where partners were chosen first."""
        if self.study.partners is not None and own_method(self.study).choice:
            return None
        return assemble.participation_of(self.study, self.opening.sites, self.seed)

    def replay_round(self, entry: RoundEntry) -> bool:
        """One round from the state before it; false where its sum is not there."""
        number = entry.round
        if number - 1 not in self.states:
            raise DoesNotFollow(f"round {number} does not come after a round that was computed again")
        before = self.states[number - 1]
        sent = message_of_round(self.way, self.transform, before, seed=self.seed, number=number)
        if digest_of(sent.arrays) != entry.sent or self.parts_of(before, entry) != entry.parts:
            raise DoesNotFollow(f"round {number}: the sites were not sent the model that the round before gave")
        if entry.sum:
            arrays = self.source.sum_of(entry.sum)
            if arrays is None:
                return False
            row = row_of(self.task)
            template = combined_shapes(self.way, self.transform, before, sent, self.params, row, len(entry.asked))
            if self.opens_means and rule_of(self.study, self.opening.sites).erodes:
                template = Message({**template.arrays, KEPT: without_model(before.server)}, template.meta)
            total = tree_like(template, arrays)
            if total is None or digest_of(total) != entry.sum:
                raise DoesNotFollow(f"round {number}: the sum that came with the transcript is not the one named in it")
            after = (
                conclude_opened(self.algorithm, before, total)
                if self.opens_means
                else conclude_round(self.algorithm, self.transform, before, total)
            )
        else:
            after = before
        if digest_of(after) != entry.state:
            raise DoesNotFollow(f"round {number}: the model does not follow from the sum{self.hint()}")
        self.states = {one: state for one, state in self.states.items() if one >= number - STEPS_BACK}
        self.states[number] = after
        return True

    def parts_of(self, before: Progress, entry: RoundEntry) -> dict[str, str] | None:
        """The hashes of what each site should have been sent; none where all were sent the same."""
        if self.way.tailoring is None:
            return None
        given, places = (
            (self.way, self.transform, before),
            {name: at for at, name in enumerate(self.opening.sites)},
        )
        return {
            site: digest_of(message_of_round(*given, seed=self.seed, number=entry.round, site=places[site]).arrays)
            for site in entry.asked
        }

    def check_losses(self, entry: LossEntry) -> None:
        server = self.states[entry.round].server
        arrays = {
            "sent": jax.device_get(self.algorithm.broadcast(server)).arrays,
            "params": jax.device_get(self.algorithm.params(server)),
        }
        if digest_of(arrays) != entry.sent:
            raise DoesNotFollow(f"round {entry.round}: the sites judged another model than the one after the round")

    def check_last(self, published: Progress, closing: Closing, report: ReplayReport) -> None:
        found = self.algorithm.params(published.server)
        if digest_of(found) != closing.model:
            far = distance(found, self.source.model)
            raise DoesNotFollow(f"the published model does not follow from the rounds{far}{self.hint()}")
        report.checked.append("the published model is the one that these rounds give")


def check_names(entry: RoundEntry, sites: Sequence[str], cohort: Participation | None) -> None:
    """Everybody who was asked answered or is said to be absent, and those were asked whom the study asks."""
    number, told = entry.round, {*entry.answers, *entry.absent}
    if set(entry.answers) & set(entry.absent) or told != set(entry.asked):
        raise DoesNotFollow(f"round {number}: the sites that answered or are left out are not those that were asked")
    if cohort is not None and sorted(sites[int(one)] for one in cohort.cohort(number)) != sorted(entry.asked):
        raise DoesNotFollow(f"round {number}: other sites were asked than the study says")
    if bool(entry.sum) != bool(entry.answers):
        raise DoesNotFollow(f"round {number}: there is a sum without answers, or answers without a sum")


def check_stopping(study: Study, closing: Closing) -> None:
    """Whether training may have stopped there."""
    stopping, every = study.stopping, study.evaluation.every
    best = closing.best_round
    if closing.rounds > study.study.rounds or (best is not None and not 0 < best <= closing.rounds):
        raise DoesNotFollow(f"training ended after round {closing.rounds} with the best round {best}: it cannot have")
    early = closing.rounds < study.study.rounds
    if study.budget is not None and closing.stopped_early:
        return  # what was spent only the coordinator knows
    if (stopping is None and (early or best is not None)) or (early and not closing.stopped_early):
        raise DoesNotFollow(f"training ended after round {closing.rounds} of {study.study.rounds} without a reason")
    if stopping is not None and early and closing.rounds - (best or 0) < stopping.patience * every:
        raise DoesNotFollow(f"training stopped after round {closing.rounds}, sooner than [stopping] patience says")


def is_close(found: Tree, drawn: Tree) -> bool:
    """Whether two models differ by rounding only."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(drawn), strict=True)
    return all(np.allclose(np.asarray(one), np.asarray(other), rtol=ROUNDING, atol=ROUNDING) for one, other in pairs)


def tree_like(template: Tree, arrays: Arrays) -> Any:
    """Arrays in the form of a nest; none where one is missing or has another form."""
    leaves, structure = jax.tree.flatten(template)
    names = leaf_names(template)
    found = [arrays.get(name) for name in names]
    if set(arrays) != set(names):
        return None
    for leaf, one in zip(leaves, found, strict=True):
        if one is None or one.shape != leaf.shape or one.dtype != leaf.dtype:
            return None
    return jax.tree.unflatten(structure, [jnp.asarray(one) for one in found])


def params_like(params: Params, arrays: Mapping[str, Any]) -> Any:
    """The arrays of a file of a model under the names of the parameters."""
    return arrays if set(arrays) != set(params) else {name: arrays[name] for name in params}


def distance(found: Params, given: Arrays | None) -> str:
    """How far a model that came with the transcript is from the one that was computed, in words."""
    ours = {name: np.asarray(one) for name, one in jax.device_get(found).items()}
    if given is None or {name: one.shape for name, one in ours.items()} != {n: one.shape for n, one in given.items()}:
        return ""
    far = max((float(np.abs(given[name] - one).max(initial=0.0)) for name, one in ours.items()), default=0.0)
    return f"; the largest difference between the two is {far:.1e}"


def words_of(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(versions.items()))
