"""How much is tested: what `make test` does, or all of it, as `make test-all` asks with WARDROUND_TESTS=all."""

import os

ALL = os.environ.get("WARDROUND_TESTS") == "all"
USUAL = 25


def examples(most: int) -> int:
    """How many examples Hypothesis tries: all of them, or as many as make a quick suite."""
    return most if ALL else min(most, USUAL)


LONG: dict[str, tuple[str, ...]] = {  # by measured time
    "tests/adversary/noise/test_noise.py::test_nor_does_it_let_out_a_round": (
        "cut",
        "cut_with_its_head",
    ),
    "tests/adversary/test_second_server.py::test_a_crash_changes_nothing": (
        "coordinator.halves.opened",
        "coordinator.round.concluded",
        "second.sum.closed",
    ),
    "tests/contracts/test_every_algorithm.py::test_an_empty_site_changes_nothing": (
        "cluster",
        "context_features",
        "ditto",
        "fed_bn",
        "fed_opt",
        "fed_prox",
        "fed_sgd",
        "federated_dropout",
        "layer_split",
        "local",
        "meta",
        "model_interpolation",
        "scaffold",
        "weight_erosion",
    ),
    "tests/contracts/test_every_algorithm.py::test_two_devices_agree_for_every_aggregator": (
        "centered_clipping",
        "class_weighted",
        "geometric_median",
        "krum",
        "majority_mean",
        "multi_krum",
        "nearest_mixing",
    ),
    "tests/contracts/test_every_algorithm.py::test_two_devices_give_the_same_model": (
        "cluster",
        "context_features",
        "ditto",
        "fed_ma",
        "fed_prox",
        "fed_sgd",
        "federated_dropout",
        "fine_tune",
        "layer_split",
        "local",
        "meta",
        "model_interpolation",
        "partial_pooling",
        "weight_erosion",
    ),
    "tests/contracts/test_every_algorithm.py::test_works_with_every_aggregator": (
        "fed_avg-centered_clipping",
        "fed_avg-class_weighted",
        "fed_avg-geometric_median",
        "fed_avg-nearest_mixing",
        "scaffold-centered_clipping",
        "scaffold-geometric_median",
        "scaffold-krum",
        "scaffold-majority_mean",
        "scaffold-median",
        "scaffold-multi_krum",
        "scaffold-nearest_mixing",
        "scaffold-norm_bounded",
    ),
    "tests/contracts/test_halves.py::test_every_aggregator": (
        "centered_clipping",
        "class_weighted",
        "geometric_median",
        "krum",
        "majority_mean",
        "nearest_mixing",
        "trimmed_mean",
    ),
    "tests/contracts/test_halves.py::test_every_probe": (
        "curvature",
        "feature_gains",
        "own_models",
        "slopes",
    ),
    "tests/deploy/coordinator/test_partner_choice.py::test_a_death_amid_the_choice_costs_nothing": (
        "coordinator.round.concluded-5",
        "site.kept.saved-17",
    ),
    "tests/deploy/coordinator/test_partner_choice.py::test_partners_and_model_are_those_of_the_simulation": (
        "leave_one_out-settings4",
        "evidence-settings1",
        "gradient_distance-settings0",
    ),
    "tests/deploy/coordinator/test_run_study.py::test_the_model_and_the_figures_are_those_of_the_simulation": (
        "ditto",
        "scaffold",
    ),
    "tests/deploy/coordinator/test_secure_round.py::test_a_death_around_the_opening_costs_nothing": (
        "coordinator.sum.opened",
        "site.mask.recorded",
    ),
    "tests/deploy/coordinator/test_secure_round.py::test_one_site_that_is_lost_at_any_step_is_bridged": (
        "advertise",
        "check",
        "reveal",
        "share",
    ),
    "tests/deploy/test_private_terms.py::test_what_noise_cannot_cover_is_refused_before_the_first_round": (
        "contexts",
        "delta",
        "maml",
    ),
    "tests/deploy/test_private_terms.py::test_whole_sites": ("True",),
    "tests/deploy/trust/test_transcript.py::test_a_crash_changes_nothing": (
        "coordinator.round.concluded-scaffold",
        "coordinator.round.concluded-secure",
    ),
    "tests/deploy/trust/test_transcript.py::test_the_published_model_follows_bit_for_bit": (
        "fed_opt",
        "private",
        "secure",
        "stopped",
    ),
    "tests/faults/test_crash_points.py::test_a_death_costs_nothing": (
        "coordinator.agreement.partial-1",
        "coordinator.checkpoint.partial-2",
        "coordinator.model.partial-1",
        "coordinator.offer.approved-1",
        "coordinator.result.partial-1",
        "coordinator.result.saved-1",
        "coordinator.round.concluded-1",
        "site.kept.before_save-1",
        "site.kept.partial-1",
        "site.model.partial-2",
        "site.reply.partial-29",
        "site.request.received-13",
    ),
    "tests/faults/test_fault_matrix.py::test_a_bad_answer_is_left_out_and_the_round_goes_on_with_the_quorum": (
        "garbage",
        "huge",
        "nan",
        "oversized",
        "shape",
    ),
    "tests/faults/test_fault_matrix.py::test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used": (
        "cut",
        "flipped",
    ),
    "tests/faults/test_fault_matrix.py::test_a_full_disk_at_a_site_is_told_and_waited_for": ("5",),
    "tests/privacy/test_row_gradients.py::test_no_parameters_make_a_row_count_for_more_than_the_clip": (
        "3e+38-cnn",
        "3e+38-layer norm",
        "3e+38-weights on the left",
    ),
    "tests/runs/test_result.py::test_what_a_command_wrote_is_read_without_loss": (
        "compare",
        "partners",
        "rates",
    ),
    "tests/workflows/test_training_plan.py::test_nothing_is_done_twice": (
        "attack",
        "compare at rates",
        "compare for each site",
        "partners",
    ),
    "tests/deploy/transport/test_every_transport.py::test_privacy_is_charged_alike_over_every_transport": (
        "in_one_process-private",
    ),
    "tests/faults/test_real_processes.py::test_a_process_that_dies_at_a_point_and_is_started_again": (
        "coordinator.study.ended-coordinator",
    ),
    "tests/workflows/test_run.py::test_killed_and_interrupted_it_ends_with_the_same_bits": (
        "scaffold, half of the sites a round",
    ),
    "tests/engine/test_shared_programs.py::test_any_noise_in_one_program_is_the_noise_compiled_in": ("1",),
    "tests/cli/test_attack.py::test_a_wide_network_betrays_some_of_few_patients_even_in_a_sum": ("",),
    "tests/deploy/coordinator/test_two_server_round.py::test_the_model_is_that_of_the_simulation": (
        "multi_krum",
        "weight_erosion",
    ),
    "tests/data/datasets/test_sepsis.py::test_patients_and_septic_patients_of_both_hospitals": ("",),
    "tests/test_docs.py::test_every_example_passes_the_check": ("examples/private.toml",),
    "tests/contracts/test_halves.py::test_every_algorithm": (
        "partial_pooling",
        "cluster",
        "model_interpolation",
    ),
    "tests/algorithms/test_cluster.py::test_the_number_is_judged_on_rows_that_nothing_was_learned_from": ("0",),
    "tests/contracts/test_judge.py::test_with_cells_of_one_patient_both_engines_tell_the_same": ("scaffold",),
    "tests/partners/choices/test_influence.py::"
    "test_least_squares_without_a_site_is_found_exactly_even_from_a_half_trained_model": ("validation-0.5",),
    "tests/privacy/test_calibration.py::test_the_promise_is_kept_and_not_by_much": ("2.0",),
    "tests/partners/choices/test_evidence.py::test_right_partners_are_ranked_first_and_let_in": ("1",),
    "tests/adversary/questions/test_rows.py::test_a_declared_preparation_is_the_one_that_is_applied": ("False",),
    "tests/workflows/test_learning_rates.py::test_one_program_for_all_rates_learns_what_one_a_rate_does": (
        "layer_split",
        "weight_erosion",
    ),
    "tests/adversary/test_session_states.py::test_long_random_walks_open_one_sum": ("",),
    "tests/data/datasets/test_sepsis.py::test_last_and_worst_values_of_the_first_patient": ("",),
    "tests/cli/test_outside_package.py::test_a_study_uses_it_and_another_is_not_harmed": ("",),
    "tests/aggregators/test_nearest_mixing.py::test_nobody_bad_is_the_mean_of_all_sites": (
        "geometric_median",
        "krum",
        "median",
    ),
    "tests/algorithms/baselines/test_centralized.py::test_a_rate_does_not_move_the_full_fit": ("",),
    "tests/contracts/test_masks.py::test_some_algorithms_learn_masks_in_both_engines": ("fed_dg-settings1",),
    "tests/contracts/test_halves.py::test_every_transform": (
        "compression",
        "kashin",
        "quantize",
        "secure_sum",
        "two_servers",
    ),
    "tests/faults/test_fault_matrix.py::"
    "test_a_bad_answer_that_nobody_may_leave_out_ends_the_study_and_says_what_to_do": (
        "huge",
        "shape",
    ),
    "tests/deploy/coordinator/test_run_study.py::test_nonsense_is_left_out_with_its_reason_when_the_quorum_allows": (
        "<lambda>-not finite",
        "<lambda>-shape",
    ),
    "tests/deploy/coordinator/analyses/test_analyses.py::test_a_coordinator_that_dies_comes_to_the_same_state": (
        "coordinator.agreement.saved",
        "coordinator.result.before_save",
    ),
    "tests/deploy/coordinator/test_monitor.py::test_it_survives_a_death": (
        "coordinator.offer.approved",
        "site.reply.ready",
    ),
    "tests/partners/choices/test_evidence.py::test_other_models_and_targets": ("network",),
    "tests/models/test_weasel.py::test_other_end_models": ("series_cnn",),
    "tests/algorithms/test_federated_dropout.py::test_real_sites_of_two_widths_learn_what_the_simulation_learns": ("",),
}
"""Variants of tests that only `make test-all` runs ("" where there is but one); quick ones of a promise stay."""


def is_long(node: str) -> bool:
    """Whether this is a variant that takes long."""
    test, _, variant = node.partition("[")
    return variant.removesuffix("]") in LONG.get(test, ())
