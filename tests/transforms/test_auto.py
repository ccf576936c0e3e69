import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.core import trees
from wardround.core.chain import choices_in
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.transforms.auto import auto

KEY = jax.random.key(0)
VALUES = np.random.default_rng(0).normal(size=40_000).astype(np.float32)
MESSAGE = Message({"update": jnp.asarray(VALUES), "weight": jnp.float32(2)})


@pytest.mark.parametrize(
    ("seconds", "down", "up"),
    # At 8 bits a second a second is a byte. 160,004 bytes as they are; about 45,500 at 8 bits, 28,500 at 5 bits down
    # and 11,500 at half of 4 bits up; 17,200 at 3 bits down and 4,700 at 0.4 of 2 bits up.
    [
        (170_000.0, "none", "none"),
        (50_000.0, "conservative", "conservative"),
        (30_000.0, "moderate", "moderate"),
        (20_000.0, "aggressive", "moderate"),
    ],
)
def test_the_gentlest_scheme_that_arrives_in_time_is_taken(seconds, down, up):
    link = auto(megabits=8e-6, seconds=seconds)
    sent = jax.eval_shape(lambda m: link.down((), m, KEY), MESSAGE)
    left = jax.eval_shape(lambda m: link.up(m, m, KEY), MESSAGE)
    assert choices_in(sent, left) == {"down": down, "up": up}
    assert max(trees.nbytes(sent), trees.nbytes(left)) <= seconds


def test_what_was_chosen_is_undone():
    link = auto(megabits=8e-6, seconds=50_000.0)
    back = jax.jit(lambda m: link.release((), link.up(m, m, KEY)))(MESSAGE)
    np.testing.assert_allclose(back.arrays["update"], VALUES, atol=0.05)
    assert float(back.arrays["weight"]) == 2
    assert set(back.arrays) == {"update", "weight"}


def test_what_cannot_arrive_in_time_is_refused():
    with pytest.raises(Refusal, match=r"compressed as far as it goes, takes longer than 100 seconds over"):
        jax.eval_shape(lambda m: auto(megabits=8e-6, seconds=100.0).down((), m, KEY), MESSAGE)


def test_the_result_tells_what_was_chosen(tmp_path, capsys):
    path = tiny.write_study(tmp_path, transforms=[{"name": "auto", "megabits": 1.0}])
    said = tiny.call(capsys, "run", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert tiny.recorded(tmp_path / "out")[0]["measures"]["compression"] == {"down": "none", "up": "none"}
    assert (
        "Compression chosen for the line: none to the sites, none from them."
        in (tmp_path / "out" / "result.json").read_text()
    )
