"""Both engines say the same about a model's quality: the same federation, simulated and over sites with homes."""

import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from wardround.core.quality import Quality
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.site.policy_file import set_policy
from wardround.engine.simulate import Simulation
from wardround.runs.folder import RunFolder
from wardround.study.methods import own_method
from wardround.workflows.run import run

ALGORITHMS = [in_process.KEPT, {"name": "fine_tune", "learning_rate": 0.1}]
"""One whose sites use the common model, and one whose sites use models of their own."""


def study_of(name: str, algorithm: dict, cell: int):
    data = in_process.study_of(name).data.model_dump(mode="json", exclude_none=True)
    preparation = {**data.get("preparation", {}), "smallest_cell": cell}
    return in_process.study_of(name, 2, algorithm=algorithm, data={"preparation": preparation})


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    return in_process.Consortium(tmp_path_factory.mktemp("judging"))


@pytest.fixture
def told(monkeypatch) -> dict[type, list[Quality]]:
    """What each engine's `judge` gives, in the order in which it is asked."""
    found: dict[type, list[Quality]] = {Simulation: [], Deployment: []}

    def listening(engine: type) -> None:
        judge = engine.judge

        def heard(self, *question):
            found[engine].append(judge(self, *question))
            return found[engine][-1]

        monkeypatch.setattr(engine, "judge", heard)

    for engine in found:
        listening(engine)
    return found


def on_both(consortium, study, told, cell: int) -> list[tuple[Quality, Quality]]:
    """The qualities of every round, simulated and deployed."""
    for home in consortium.homes.values():
        set_policy(home.policy_path, "smallest_cell", str(cell))
    consortium.conduct(study)
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    path = consortium.folder / "patients.csv"
    pd.concat(frames).to_csv(path, index=False)
    study = study.model_copy(update={"data": study.data.model_copy(update={"path": str(path)})})
    folder = RunFolder.create(consortium.folder / f"simulated-{study.study.name}", resume=False)
    run(study, folder, [own_method(study)], kind="run")
    return list(zip(told[Simulation], told[Deployment], strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one["name"])
def test_with_cells_of_one_patient_both_engines_tell_the_same(consortium, told, algorithm):
    study = study_of(f"exact-{algorithm['name']}", algorithm, 1)
    rounds = on_both(consortium, study, told, 1)
    assert len(rounds) == 2
    for simulated, deployed in rounds:
        assert deployed.sites == simulated.sites == in_process.NAMES
        assert deployed.rows.tolist() == simulated.rows.tolist()
        assert deployed.right is not None
        assert simulated.right is not None
        assert deployed.right.tolist() == simulated.right.tolist()
        np.testing.assert_allclose(deployed.loss, simulated.loss, rtol=1e-5)
    # Else the same numbers every time would pass, too.
    assert rounds[0][0].mean_loss > rounds[1][0].mean_loss


def test_larger_cells_coarsen_rows_right_answers_and_the_mean_loss(consortium, told):
    """The simulation's preparation rounds as the sites do, so both train alike; only what sites tell is coarser."""
    for simulated, deployed in on_both(consortium, study_of("coarse", in_process.KEPT, 10), told, 10):
        assert deployed.rows.tolist() == (simulated.rows // 10 * 10).tolist()
        # After a round or two no loss is above 2, and the sites have 30 patients or more: 2 * 2 / 30 is 0.134, so the
        # grid has steps of a quarter at most, and a mean is off by less than one; told exactly, it were no multiple.
        means = np.array(list(deployed.mean_losses().values()))
        assert np.abs(means - np.array(list(simulated.mean_losses().values()))).max() < 0.25
        assert (means * 64 == np.round(means * 64)).all()
        assert deployed.right is not None
        assert simulated.right is not None
        # One patient makes at most half a step of the grid of shares, whose steps are powers of two: off by less than a
        # step, and by rounding to whole rows.
        off = np.abs(deployed.right / deployed.rows - simulated.right / simulated.rows)
        steps = 2 ** np.ceil(np.log2(2 / simulated.rows))
        assert (off < steps + 0.5 / deployed.rows).all()
