"""What lies could do to a study: the attacks work where nothing protects, and the figures follow what does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal
from wardround.deploy.site.release.disclosure import coarse_losses
from wardround.report.notes import attack_notes
from wardround.study import assemble
from wardround.study.file import read_study
from wardround.study.methods import own_method
from wardround.workflows.attack import lying_coordinator
from wardround.workflows.attack.attack import variants
from wardround.workflows.attack.lying_coordinator import from_losses, from_two_sums, models_of_choice
from wardround.workflows.training_plan import TrainingPlan, plan_training

SUM = [{"name": "secure_sum"}]
WHOLE = {"algorithm": {"batch_size": 0, "local_epochs": 1}}
"""One step over all patients: the order in which they come makes no difference between two rounds."""


def plans(folder: Path, **tables: Any) -> list[TrainingPlan]:
    """Without protection, and as the study is."""
    study = read_study(tiny.write_study(folder, **tables))
    plan = plan_training(study, assemble.load_setting(study, 1), own_method(study))
    return [one.plan for one in variants(study, plan)]


def test_exact_losses_tell_of_everybody(tmp_path: Path) -> None:
    """Six validation patients at each of four hospitals (20 % of 30): whoever is missing, the sum is another."""
    (plan,) = plans(tmp_path)
    found = from_losses(plan.study, plan)
    assert (found["patients"], found["exact"], found["looks"], found["cell"]) == (24, 24, 4, 10)
    # Six are fewer than a cell of ten, of whom a site tells nothing at all.
    assert found["released"] == 0


def test_what_leaves_is_what_the_sites_rule_lets_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure is that of the rule: with one that tells the number of patients only, nobody is found but at an edge.

    Twenty validation patients at a site: nineteen are another number of cells of ten, so leaving out any of them shows.
    """
    (plan,) = plans(tmp_path, frame=tiny.patients(rows=100))

    def told(scores: Scores, task: Task, cell: int) -> dict[str, Any]:
        return {"rows": len(scores.actual) // cell}

    before = from_losses(plan.study, plan)
    assert before["patients"] == before["exact"] == 80
    monkeypatch.setattr(lying_coordinator, "coarse_losses", told)
    assert from_losses(plan.study, plan)["released"] == 80
    monkeypatch.setattr(lying_coordinator, "coarse_losses", lambda scores, task, cell: {"rows": 0})
    assert from_losses(plan.study, plan)["released"] == 0


def test_the_rule_in_use_is_that_of_the_sites() -> None:
    assert lying_coordinator.coarse_losses is coarse_losses


def test_models_are_of_the_coordinators_choice() -> None:
    params = {"w": np.zeros(3, np.float32)}
    first, second, last = models_of_choice(params, 3, 1)
    assert first is params
    assert np.abs(second["w"]).max() < 10
    assert np.abs(last["w"]).max() > 100
    assert len(models_of_choice(params, 1, 1)) == 1


@pytest.mark.slow
def test_a_site_is_read_from_two_sums(tmp_path: Path) -> None:
    bare, plan = plans(tmp_path, transforms=SUM, **WHOLE)
    seen, read = from_two_sums(bare, bare), from_two_sums(plan, bare)
    assert (seen["single_updates_seen"], seen["error"]) == (True, 0.0)
    assert not read["single_updates_seen"]
    # The same step in both rounds: nothing is left but the rounding to fixed point.
    assert read["error"] < 1e-3
    assert read["guess_error"] > 0.05
    said = attack_notes(["secure_sum"], private=False, sums=read)
    assert any(f"says in the second that {read['site']} was lost reads this site's update" in one for one in said)


def test_noise_covers_what_two_sums_tell(tmp_path: Path) -> None:
    """Noise that is named need not be searched for: it is about that of an epsilon of 1."""
    noise = {"level": "sample", "noise_multiplier": 4.0, "delta": 1e-3, "seeded": True}
    bare, plan = plans(tmp_path, transforms=SUM, privacy=noise, **WHOLE)
    read = from_two_sums(plan, bare)
    assert read["error"] > 1.0  # a blind guess of zero misses by 1
    assert not any("was lost reads" in one for one in attack_notes([], private=True, sums=read))


def test_what_cannot_be_tried(tmp_path: Path) -> None:
    (plan,) = plans(tmp_path, algorithm={"name": "local"})
    with pytest.raises(Refusal, match="model of its own"):
        from_losses(plan.study, plan)
    with pytest.raises(Refusal, match="No site sends anything"):
        from_two_sums(plan, plan)
