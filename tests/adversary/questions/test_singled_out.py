"""A model that is sure of every patient but one: whose row does the information at it tell?"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.partial_pooling import partial_pooling
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message, Task
from wardround.core.solvers.fisher import flat
from wardround.deploy.site.datasets import DatasetEntry, most_images
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.engine.split_round import one_site
from wardround.models.logistic import logistic
from wardround.partners.probes.information import information

PATIENTS, FEATURES, CELL = 60, 4, 10
TASK = Task((FEATURES,), ("no", "yes"), "died")
MODEL = logistic(TASK)


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    """The oldest patient, of whom the attacker knows the age alone, is far from the others in age."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(PATIENTS, FEATURES)).astype(np.float32)
    x[0, 0] = 4.0
    return x, (rng.random(PATIENTS) < 0.5).astype(np.int32)


def edge_at_the_target() -> dict[str, Any]:
    """Whoever is younger is surely well; at the age of the oldest it is one in two."""
    kernel = np.zeros((FEATURES, 2), np.float32)
    kernel[0, 1] = 40.0
    return {"dense_0/kernel": jnp.asarray(kernel), "dense_0/bias": jnp.asarray([0.0, -160.0], jnp.float32)}


def answer_of(algorithm: Any, rows: Any, params: Any, **more: Any) -> Any:
    x, y = rows
    shard = one_site(x, y, np.arange(len(x))[None])
    kept = algorithm.init_client(params)
    told, _ = algorithm.client(Message({"params": params, **more}), kept, shard, jax.random.key(0))
    return {
        name: np.asarray(one) / float(told.arrays["weight"]) for name, one in told.arrays.items() if name != "weight"
    }


def row_from(bend: Any) -> Any:
    """Of one patient the information is her row times itself: the entries beside the bias are the row."""
    # Leaves in order: the bias of both classes, then the weights, feature after feature.
    return bend[1, [3, 5, 7, 9]] / bend[1, 1]


def test_without_a_smallest_cell_the_row_of_one_patient_is_read(rows: Any) -> None:
    """The positive control: all of a patient's columns to a thousandth, from one answer."""
    told = answer_of(information(MODEL), rows, edge_at_the_target())
    assert np.allclose(row_from(told["bend"]), rows[0][0], atol=1e-3)
    variance = jnp.full(flat(edge_at_the_target()).shape[0], 1e-4)
    pooled = answer_of(
        partial_pooling(MODEL, weighted_mean()), rows, edge_at_the_target(), variance=variance, noise=jnp.ones(())
    )
    assert np.allclose(row_from(pooled["known"]), rows[0][0], atol=0.05)


def test_with_a_smallest_cell_it_tells_nothing(rows: Any) -> None:
    told = answer_of(information(MODEL, smallest_cell=CELL), rows, edge_at_the_target())
    assert not told["bend"].any()
    variance = jnp.full(flat(edge_at_the_target()).shape[0], 1e-4)
    algorithm = partial_pooling(MODEL, weighted_mean(), smallest_cell=CELL)
    pooled = answer_of(algorithm, rows, edge_at_the_target(), variance=variance, noise=jnp.ones(()))
    assert not pooled["known"].any()
    assert not pooled["apart"].any()


def test_an_honest_question_is_answered_as_before(rows: Any) -> None:
    start = MODEL.init(jax.random.key(0))
    plain, coarse = (answer_of(information(MODEL, smallest_cell=cell), rows, start) for cell in (1, CELL))
    assert all(np.array_equal(plain[name], coarse[name]) for name in plain)
    assert plain["bend"].any()


def test_a_real_site_sets_its_own_cell_whatever_it_is_asked() -> None:
    for kind, name in (("probe", "information"), ("algorithm", "partial_pooling")):
        for said in ((), (("smallest_cell", 1),)):
            raised = in_own_cells(Recipe(kind, name, said), CELL)
            assert dict(raised.settings)["smallest_cell"] == CELL


def test_a_real_site_counts_patients_where_rows_are_images() -> None:
    for name in ("fed_sim", "fed_dg", "asyn_dgan"):
        asked = Recipe("algorithm", name, (("images_each", 1), ("smallest_cell", 1)))
        raised = dict(in_own_cells(asked, CELL, images_each=7).settings)
        assert (raised["smallest_cell"], raised["images_each"]) == (CELL, 7)


def test_a_patient_is_whom_a_level_or_a_label_names_or_the_topmost_folder() -> None:
    frame = pd.DataFrame({"subject": ["a", "a", "a", "b"], "session": ["1", "2", "2", "1"]})
    for layout, most in (("subject/session/frame", 3), ("site/subject/session/frame", 3), ("session/frame", 3)):
        assert most_images(DatasetEntry(source="images", layout=layout), frame) == most
    assert most_images(DatasetEntry(source="images"), frame) == 3  # by the source's own default
    # All files in one folder, and a table that tells whose each is, as large archives come.
    flat = DatasetEntry(source="images", layout="frame")
    for name in ("Patient ID", "patient_id", "Person"):
        assert most_images(flat, frame.rename(columns={"subject": name})) == 3
    assert most_images(flat, frame.rename(columns={"subject": "Patient Age"})) == 1
    assert most_images(DatasetEntry(source="images", layout="session/frame"), frame[["session"]]) == 2
    assert most_images(DatasetEntry(source="csv", path="patients.csv"), frame) == 1
    assert most_images(DatasetEntry(source="images", layout="subject/frame"), frame[:0]) == 1
