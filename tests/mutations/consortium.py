"""Mutations of what sites, coordinator and second server do."""

from tests.mutations.mutation import Mutation

MUTATIONS = (
    Mutation(
        "a_site_forgets_whom_it_told_about",
        "deploy/site/analyses/answered_rows.py",
        "check_difference(mask, near, cell, site=site.name)",
        "pass",
        ("adversary/questions/test_tables_and_tests.py",),
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
        ("adversary/questions/test_questions.py",),
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
        '        if opening is not None and step != "reveal":\n            return repeat_opening',
        (
            "adversary/test_sums.py",
            "adversary/test_session_states.py",
        ),
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
        "approval_not_looked_at_again",
        "deploy/site/request_handler.py",
        """            if state is not Status.OK:
                return self._status_reply(header, state, why)
            facts""",
        "            facts",
        (
            "deploy/coordinator/test_side_by_side.py::test_an_answer_in_the_making_does_not_leave_after_its_approval_moved",
        ),
    ),
    Mutation(
        "statistics_counted_in_parallel",
        "deploy/site/request_handler.py",
        "self._statistics if topic in COUNTED else nullcontext()",
        "nullcontext()",
        (
            "deploy/coordinator/test_side_by_side.py"
            "::test_the_last_statistic_of_a_dataset_is_told_to_one_of_two_studies_that_ask_at_once",
        ),
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
)
