"""Breaks a promise of the code on purpose, in one place at a time, and sees whether the quick suite notices.

`python -m tests.mutations [NAME...]` copies the package, applies one mutation after the other and runs the test files
that guard the place, without those marked slow. A mutation that no test notices is a hole in the suite: it fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ROOT / ".pytest_cache" / "compiled"
LONGEST = 600
"""Seconds that the tests of one mutation may take."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; any other says that it could not run the tests, so nothing is known."""


class Mutation(NamedTuple):
    """One place made wrong: `old` stands exactly once in `file` (below the package) and becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files below tests/ (or FILE::TEST) of which at least one test must fail."""


MUTATIONS = (
    Mutation(
        "totals_give_a_small_cell_away",
        "statistics/disclosure/counts.py",
        "closed = close_lines(counts, is_open, cell)",
        "closed = False and close_lines(counts, is_open, cell)",
        ("statistics/disclosure/test_counts.py", "analyses/test_cross_table.py"),
    ),
    Mutation(
        "bins_halved_around_one_patient",
        "statistics/disclosure/grid.py",
        "small: Vector = ((counts > 0) & (counts < cell)) | ((beside > 0) & (beside < cell))",
        "small: Vector = (counts > 0) & (counts < cell)",
        ("statistics/disclosure/test_grid.py",),
    ),
    Mutation(
        "a_mean_that_one_patient_makes",
        "statistics/disclosure/dominance.py",
        "return few > SHARE * total or total - few < PERCENT * float(largest.max())",
        "return False",
        ("statistics/disclosure/test_dominance.py", "analyses/test_group_means.py"),
    ),
    Mutation(
        "all_but_one_patient",
        "statistics/disclosure/subsets.py",
        '"leaves out" if of - kept < cell else ""',
        '""',
        ("statistics/disclosure/test_subsets.py", "adversary/questions/test_tables_and_tests.py"),
    ),
    Mutation(
        "a_site_forgets_whom_it_told_about",
        "deploy/site/analyses/answered_rows.py",
        "check_difference(mask, near, cell, site=site.name)",
        "pass",
        ("adversary/questions/test_tables_and_tests.py",),
    ),
    Mutation(
        "shifts_of_sites_in_the_common_effects",
        "analyses/combat.py",
        "own_y, own_z = (one - one.mean(axis=0) if len(one) else one for one in (y, z))",
        "own_y, own_z = y, z",
        ("analyses/test_combat.py",),
    ),
    Mutation(
        "tau2_without_its_correction",
        "statistics/pooling/random_effects.py",
        "- w.sum() + (w**2).sum() / w.sum()))",
        "- w.sum()))",
        ("analyses/test_meta_analysis.py",),
    ),
    Mutation(
        "new_bets_out_of_nothing",
        "monitor/bets.py",
        "own = -np.log(count * (count + 1.0))",
        "own = -np.log(count)",
        ("monitor/test_bets.py",),
    ),
    Mutation(
        "patients_counted_twice",
        "monitor/surveillance.py",
        "new = ~np.isin(rows.marks, counted)",
        "new = np.ones(len(rows), bool)",
        ("monitor/test_monitor.py",),
    ),
    Mutation(
        "tolerance_turned_round",
        "monitor/bets.py",
        "told = (odds + sign * slack)[:, None]",
        "told = (odds - sign * slack)[:, None]",
        ("monitor/test_bets.py",),
    ),
    Mutation(
        "adaptation_of_another_model",
        "predict/adaptation.py",
        "if found.model != facts.digest or found.site != site:",
        "if found.site != site:",
        ("predict/test_adaptation.py",),
    ),
    Mutation(
        "small_windows_named",
        "queries/outcomes_by_window.py",
        "np.flatnonzero(sums[0] >= smallest_cell)",
        "np.flatnonzero(sums[0] >= 1)",
        ("queries/test_outcomes_by_window.py",),
    ),
    Mutation(
        "update_sign",
        "algorithms/fed_avg.py",
        "return trees.add(params, trees.scale(combined",
        "return trees.subtract(params, trees.scale(combined",
        ("algorithms/test_fed_avg.py",),
    ),
    Mutation(
        "mean_not_divided",
        "aggregators/weighted_mean.py",
        "**trees.divide_or_zero(rest, weight)",
        "**rest",
        ("aggregators/test_weighted_mean.py",),
    ),
    Mutation(
        "noise_skipped",
        "privacy/dp_sgd.py",
        "total = trees.add(total, trees.scale(noise, scale))",
        "total = trees.add(total, trees.scale(noise, 0 * scale))",
        ("privacy/test_dp_sgd.py",),
    ),
    Mutation(
        "row_clip_dropped",
        "privacy/row_gradients.py",
        "jnp.minimum(1.0, clip / jnp.sqrt(jnp.maximum(squared, 1e-30)))",
        "jnp.ones_like(squared)",
        ("privacy/test_row_gradients.py",),
    ),
    Mutation(
        "answer_clip_dropped",
        "transforms/clip.py",
        "norm / jnp.maximum(length, norm)",
        "norm / norm",
        ("transforms/test_clip.py",),
    ),
    Mutation(
        "cap_unchecked",
        "privacy/budget.py",
        "if after > self.cap:",
        "if after < 0:",
        ("privacy/test_budget.py",),
    ),
    Mutation(
        "debit_after_answer",
        "deploy/site/study_worker.py",
        """\
            self.promise.charge(asked.question.recipe, number, request, known)
            point("site.budget.charged")
        answer, keeps, finite = carried_round(algorithm, transform, message, kept, own, seed=seed, number=number)
""",
        """\
        answer, keeps, finite = carried_round(algorithm, transform, message, kept, own, seed=seed, number=number)
        if self.promise is not None:
            self.promise.charge(asked.question.recipe, number, request, known)
            point("site.budget.charged")
""",
        ("deploy/test_private_rounds.py::test_a_site_debits_before_it_trains",),
    ),
    Mutation(
        "server_threshold_dropped",
        "privacy/secure_sum/server.py",
        "if len(heard) < server.fewest:",
        "if not heard:",
        ("privacy/secure_sum/test_protocol.py", "privacy/secure_sum/test_bad_messages.py"),
    ),
    Mutation(
        "site_threshold_dropped",
        "privacy/secure_sum/site.py",
        "if count < max(session.threshold, needed):",
        "if not count:",
        ("privacy/secure_sum/test_protocol.py", "privacy/secure_sum/test_bad_messages_to_sites.py"),
    ),
    Mutation(
        "mask_sign",
        "privacy/secure_sum/server.py",
        "(minus if peer < lost else plus)",
        "(plus if peer < lost else minus)",
        ("privacy/secure_sum/test_protocol.py",),
    ),
    Mutation(
        "signature_unchecked",
        "privacy/secure_sum/server.py",
        "if not is_signed(message, server.keys[sender]):",
        "if message.signature is None:",
        ("privacy/secure_sum/test_bad_messages.py",),
    ),
    Mutation(
        "fewer_shares_suffice",
        "privacy/secure_sum/shamir.py",
        "for _ in range(threshold - 1)]",
        "for _ in range(threshold - 2)]",
        ("privacy/secure_sum/test_shamir.py",),
    ),
    Mutation(
        "append_without_fsync",
        "core/files.py",
        "        os.fsync(file)\n",
        "",
        ("core/test_files.py",),
    ),
    Mutation(
        "rename_without_fsync_of_the_folder",
        "core/files.py",
        "    if wait:\n        sync_folder(path.parent)\n",
        "",
        ("core/test_files.py",),
    ),
    Mutation(
        "rename_before_fsync",
        "core/files.py",
        "                os.fsync(file.fileno())\n        os.replace(partial, path)\n",
        "                os.replace(partial, path)\n                os.fsync(file.fileno())\n",
        ("core/test_files.py", "engine/test_checkpoint.py"),
    ),
    Mutation(
        "torn_line_cut_without_fsync",
        "core/journals/journal.py",
        "st_size - torn)\n        os.fsync(file)\n",
        "st_size - torn)\n",
        ("core/journals/test_journal.py",),
    ),
    Mutation(
        "journal_hash_unchecked",
        "core/journals/journal.py",
        'is_intact = chain_hash(line["previous"], content) == line["hash"]',
        "is_intact = True",
        ("core/journals/test_journal.py",),
    ),
    Mutation(
        "previous_checkpoint_overwritten",
        "engine/checkpoint.py",
        "    keep_previous(path)\n    write_whole(path, content)\n",
        "    write_whole(path, content)\n    keep_previous(path)\n",
        ("engine/test_checkpoint.py",),
    ),
    Mutation(
        "checkpoint_hash_unchecked",
        "engine/checkpoint.py",
        'if digest_of(arrays, header) == words["sha256"] else None',
        'if words["sha256"] else None',
        ("engine/test_checkpoint.py",),
    ),
    Mutation(
        "small_cells_released",
        "queries/cells.py",
        "return counts - counts % cell",
        "return counts",
        ("queries/test_cells.py", "queries/test_category_counts.py"),
    ),
    Mutation(
        "rare_outcomes_released",
        "deploy/site/release/disclosure.py",
        "if not over_all and (patients if name in SMOOTH else few) < cell:",
        "if cell < 0:",
        ("deploy/site/test_differencing.py",),
    ),
    Mutation(
        "approval_unchecked",
        "deploy/site/request_handler.py",
        "if topic == Topic.OFFER or state is not Status.OK:",
        "if topic == Topic.OFFER:",
        ("deploy/site/test_request_handler.py::test_what_a_site_says_to_those_it_does_not_answer",),
    ),
    Mutation(
        "asker_unchecked",
        "deploy/site/request_handler.py",
        "if origin != self.coordinator:",
        "if not origin:",
        ("deploy/site/test_request_handler.py::test_what_a_site_says_to_those_it_does_not_answer",),
    ),
    Mutation(
        "replay_accepted",
        "deploy/protocol/replies.py",
        "(request.study, request.round, request.nonce, site)",
        "(request.study, request.round, bound[2], site)",
        ("deploy/protocol/test_replies.py",),
    ),
    Mutation(
        "components_unchecked",
        "deploy/site/policy.py",
        "(not meant & set(policy.components) or bool(meant & set(policy.components_denied)))",
        "not meant",
        ("deploy/site/test_policy.py",),
    ),
    Mutation(
        "expired_certificate_accepted",
        "deploy/trust/certificates.py",
        "if moment > certificate.not_valid_after_utc:",
        "if moment is None:",
        ("deploy/trust/test_certificates.py",),
    ),
    Mutation(
        "sender_other_than_its_certificate",
        "deploy/transport/cellnet_filter.py",
        "(headers.get(MessageHeaderKey.ORIGIN) != name, ",
        "(not name, ",
        ("faults/test_bad_members.py::test_a_site_reaches_no_other_and_speaks_for_no_other",),
    ),
    Mutation(
        "second_answer_to_a_round",
        "deploy/site/release/gate.py",
        "            if used[place.slot].request != asked.request:",
        "            if not asked.request:",
        ("adversary/questions/test_questions.py::test_a_round_has_one_answer_whatever_the_words_around_it",),
    ),
    Mutation(
        "list_never_used_up",
        "deploy/site/release/gate.py",
        "        elif len(used) >= one.times:",
        "        elif one.times < 0:",
        ("deploy/site/test_release_list.py",),
    ),
    Mutation(
        "gate_left_open",
        "deploy/site/request_handler.py",
        "        gate.admit(claim)\n",
        "",
        ("adversary/questions/test_questions.py",),
    ),
    Mutation(
        "column_set_aside_as_input",
        "deploy/site/release/agreement.py",
        "        if column == table.target or column in table.aside:",
        "        if column == table.target:",
        ("adversary/questions/test_questions.py",),
    ),
    Mutation(
        "denied_column_still_read",
        "deploy/site/approvals.py",
        "[*decision.columns, *required_columns(study_of(offer))]",
        "[*required_columns(study_of(offer))]",
        ("adversary/questions/test_approved_list.py::test_a_column_denied_amid_a_study_ends_it",),
    ),
    Mutation(
        "overflow_told",
        "privacy/row_gradients.py",
        "kept = taken & jnp.isfinite(squared)",
        "kept = taken",
        ("privacy/test_row_gradients.py",),
    ),
    Mutation(
        "ledger_rolled_back",
        "privacy/budget.py",
        "        for problem in ledger_problems(hashes, self._heads())[:1]:",
        "        for problem in ():",
        (
            "privacy/test_budget.py",
            "adversary/noise/test_noise.py",
        ),
    ),
    Mutation(
        "key_not_pinned",
        "deploy/trust/pins.py",
        "            if fingerprint(key) != expected:",
        "            if not expected:",
        ("adversary/identities/test_identities.py",),
    ),
    Mutation(
        "small_roster",
        "deploy/trust/pins.py",
        "    if len(roster) < fewest:",
        "    if not roster:",
        ("adversary/identities/test_identities.py",),
    ),
    Mutation(
        "nonce_used_twice",
        "deploy/site/release/secure_round.py",
        "        self.records.use_nonce(session.nonce)\n",
        "",
        ("adversary/test_sums.py",),
    ),
    Mutation(
        "round_opened_twice",
        "deploy/site/release/secure_round.py",
        "        if opening is not None:\n            return repeat_opening",
        '        if opening is not None and step == "reveal":\n            return repeat_opening',
        (
            "adversary/test_sums.py",
            "adversary/test_session_states.py",
        ),
    ),
    Mutation(
        "complaint_about_other_bytes",
        "privacy/secure_sum/site.py",
        '        if read_entries(said, "complaints").get(site.name) != parcel.digest:',
        "        if not parcel.digest:",
        ("privacy/secure_sum/test_bad_dealers.py",),
    ),
    Mutation(
        "weight_unbound",
        "deploy/coordinator/answer_bounds.py",
        "+ self.cells.get(site, 1) - 1",
        "+ 10**6",
        ("adversary/test_lying_sites.py",),
    ),
    Mutation(
        "fault_ends_the_process",
        "deploy/coordinator/service.py",
        "        except Exception as error:\n            result, state",
        "        except KeyError as error:\n            result, state",
        ("adversary/test_lying_sites.py",),
    ),
    Mutation(
        "replayed_state_unchecked",
        "deploy/trust/transcript/replay.py",
        "!= entry.state",
        '== ""',
        ("adversary/test_transcript.py",),
    ),
    Mutation(
        "masks_not_bound_to_the_agreement",
        "deploy/site/release/secure_round.py",
        "if model_hash(message, agreed_in(self.folder)) != session.model:",
        "if model_hash(message, agreed_in(self.folder)) is None:",
        ("adversary/test_agreed_sums.py::test_a_sum_among_sites_of_two_preparations_is_not_opened",),
    ),
    Mutation(
        "halves_not_bound_to_the_agreement",
        "deploy/site/release/two_server_round.py",
        "if model_hash(message, agreed_in(self.folder)) != meeting.model:",
        "if model_hash(message, agreed_in(self.folder)) is None:",
        ("adversary/test_agreed_sums.py::test_two_servers_choose_among_answers_to_one_question",),
    ),
    Mutation(
        "approval_moves_after_answers",
        "deploy/site/studies/amendment.py",
        "    if has_left(home, old):",
        "    if not old:",
        ("deploy/coordinator/test_study_life.py::test_an_approval_moves_only_while_nothing_has_left",),
    ),
    Mutation(
        "misfits_told_without_the_policy",
        "deploy/site/authorization.py",
        '.mismatches == "told":',
        '.mismatches != "":',
        ("deploy/site/test_data_check.py",),
    ),
    Mutation(
        "log_behind_the_approval",
        "deploy/site/authorization.py",
        "if study and not self._left.has_approval(study):",
        "if study is None:",
        ("adversary/test_moved_log.py",),
    ),
    Mutation(
        "approved_again_without_the_log",
        "deploy/site/approvals.py",
        "    if not record.has_approval(study):",
        "    if not study:",
        ("adversary/test_moved_log.py",),
    ),
    Mutation(
        "witness_of_any_key",
        "deploy/trust/transcript/signatures.py",
        "return any(fingerprint(key) in pinned.get(site, ()) for key in keys.get(site, ()))",
        "return bool(keys)",
        ("adversary/test_witnesses.py",),
    ),
    Mutation(
        "invented_end_believed",
        "deploy/trust/transcript/signatures.py",
        "return seen.head != head and bool(head_problem(signer, seen.head))",
        "return False",
        ("adversary/test_witnesses.py",),
    ),
    Mutation(
        "questions_about_the_site_in_parallel",
        "deploy/site/request_handler.py",
        "                with self._about:",
        "                if topic:",
        ("adversary/test_witnesses.py",),
    ),
    Mutation(
        "another_key_not_told",
        "deploy/site/partner_summary.py",
        "how = how if known.has_had(words) else",
        "how = how if known.by else",
        ("adversary/test_witnesses.py",),
    ),
    Mutation(
        "transcript_goes_back",
        "deploy/trust/transcript/replay.py",
        "        if number - 1 not in self.states:",
        "        if number < 0:",
        ("adversary/test_witnesses.py",),
    ),
    Mutation(
        "liar_in_a_sum_asked_for_ever",
        "deploy/coordinator/secure_round.py",
        "            self.faulty |= unusable\n",
        "            self.faulty |= {}\n",
        ("adversary/test_sum_breaches.py::test_a_study_that_needs_the_liar_ends_by_name",),
    ),
    Mutation(
        "unknown_words_at_the_second_server",
        "deploy/second/request_handler.py",
        "        refuse_unknown_words(Topic.OPEN, header)\n",
        "",
        ("adversary/test_second_parties.py",),
    ),
    Mutation(
        "noise_drawn_anew_for_two_servers",
        "deploy/site/release/two_server_round.py",
        "if self.study.privacy is not None and path.exists():",
        "if self.study.privacy is None and path.exists():",
        ("adversary/test_private_halves.py::test_eight_attempts_carry_one_noised_answer_and_cost_one_debit",),
    ),
    Mutation(
        "sent_answer_drawn_anew",
        "deploy/site/request_handler.py",
        "                self._gates[study].refuse_gone(claim)\n",
        "                pass\n",
        ("deploy/test_private_rounds.py::test_an_answer_that_may_have_left_is_never_made_anew",),
    ),
    Mutation(
        "hidden_characters",
        "core/text.py",
        '"Cf"',
        '"Cx"',
        ("core/test_text.py",),
    ),
    Mutation(
        "threshold_from_test_patients",
        "workflows/clinical.py",
        'look = None if operating_rule(study).name == "threshold" else validation_scores(plans, trained)',
        'look = None if operating_rule(study).name == "threshold" else scores',
        ("workflows/test_clinical.py",),
    ),
    Mutation(
        "net_benefit_without_odds",
        "evaluate/clinical/decision_curve.py",
        "odds = thresholds / (1 - thresholds)",
        "odds = thresholds",
        ("evaluate/clinical/test_decision_curve.py",),
    ),
    Mutation(
        "small_count_given_away",
        "evaluate/clinical/cell_suppression.py",
        "if gone.sum() >= 2 and line[gone].sum() >= smallest:",
        "if gone.any():",
        ("evaluate/clinical/test_cell_suppression.py",),
    ),
    Mutation(
        "model_unchecked",
        "runs/model_file.py",
        "if digest_of(arrays) != facts.digest:",
        "if not facts.digest:",
        ("predict/test_model_files.py",),
    ),
    Mutation(
        "model_of_another_site",
        "predict/predictor.py",
        "place = facts.sites.index(site)",
        "place = 0",
        ("predict/test_raw_rows.py",),
    ),
    Mutation(
        "typical_patient_with_gaps",
        "predict/explanation.py",
        "row[at - 1] = 0.0",
        "row[at - 1] = 1.0",
        ("predict/test_explanation.py",),
    ),
    Mutation(
        "kinks_overlooked",
        "predict/explanation.py",
        "good = (miss <= TOLERANCE * width)",
        "good = (miss <= width)",
        ("predict/test_explanation.py",),
    ),
    Mutation(
        "export_unchecked",
        "export/trial_rows.py",
        "if not largest <= APART:",
        "if largest > 1e9:",
        ("export/test_onnx_model.py::test_an_export_with_other_numbers_is_not_handed_out",),
    ),
    Mutation(
        "exported_clamp_dropped",
        "export/onnx_graph.py",
        "(column.low, column.high)))",
        "(-1e30, 1e30)))",
        ("export/test_onnx_model.py",),
    ),
    Mutation(
        "exported_classes_unsorted",
        "export/sklearn_model.py",
        "np.float64)[:, order]",
        "np.float64)",
        ("export/test_sklearn_model.py",),
    ),
)


def run_tests(copy: Path, tests: tuple[str, ...]) -> tuple[int | None, str]:
    """The exit code of pytest in the copy (none: it took too long) and the last lines it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "WARDROUND_TESTS"}
    environment |= {"PYTHONPATH": str(copy), "JAX_COMPILATION_CACHE_DIR": str(COMPILED)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *(f"tests/{path}" for path in tests)],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no result within {LONGEST} s"
    return done.returncode, "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])


def apply(mutation: Mutation, source: str) -> str:
    """The source with the mutation in it; the place must be there, once."""
    found = source.count(mutation.old)
    if found != 1:
        sys.exit(f"{mutation.name}: its old text stands {found} times in {mutation.file}, not once. Correct the table.")
    return source.replace(mutation.old, mutation.new)


def judge(mutation: Mutation, copy: Path) -> tuple[str, str]:
    """killed, survived or unclear, and what pytest printed; the copy is left as it was."""
    path = copy / "wardround" / mutation.file
    source = path.read_text()
    compiled = Path(cache_from_source(str(path)))
    try:
        path.write_text(apply(mutation, source))
        compiled.unlink(missing_ok=True)  # it is known by a time in whole seconds
        code, said = run_tests(copy, mutation.tests)
    finally:
        path.write_text(source)
        compiled.unlink(missing_ok=True)
    return {FAILED: "killed", PASSED: "survived"}.get(-1 if code is None else code, "unclear"), said


def main(names: list[str]) -> int:
    unknown = set(names) - {one.name for one in MUTATIONS}
    if unknown:
        sys.exit(f"no such mutation: {', '.join(sorted(unknown))}. There are: {', '.join(m.name for m in MUTATIONS)}")
    chosen = [one for one in MUTATIONS if not names or one.name in names]
    verdicts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="wardround-mutations-") as folder:
        copy = Path(folder)
        for part in ("wardround", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for one in chosen:
            apply(one, (copy / "wardround" / one.file).read_text())
        # Only tests that pass on the code as it is can notice anything.
        for tests in dict.fromkeys(one.tests for one in chosen):
            code, said = run_tests(copy, tests)
            if code != PASSED:
                sys.exit(f"{' and '.join(tests)}: the tests do not pass without a mutation either\n{said}")
        for one in chosen:
            began = time.monotonic()
            verdict, said = judge(one, copy)
            verdicts.append(verdict)
            print(f"{verdict:<9}{one.name} ({one.file}, {time.monotonic() - began:.0f} s)", flush=True)
            if verdict != "killed":
                print(said, flush=True)
    killed = verdicts.count("killed")
    print(f"{killed} of {len(chosen)} mutations were noticed by the quick suite.")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
