"""The experiment: every way to learn, with every start, over sessions or shards; each person is a site.

Ways: C centralized, F federated (FedAvg), FP federated with personal upper layers (algorithm 2), FL each alone. Starts:
(N) none, (C) centralized pre-training on the other group of people, (F) federated pre-training; BC and BF are these
starts without further training, RANDOM the untrained model. Training stops early on the weighted validation loss over
people, and the best models are restored. Over sessions a model is tested on the session after the one it was validated
on, before it has seen either; what sites keep to themselves stays with them from session to session.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Model, Params, Progress, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine import registry
from wardround.engine.fit import EarlyStopping, Schedule, fit
from wardround.engine.participation import everyone
from wardround.engine.simulate import Simulation
from wardround.workflows.pain.frames import PainFrames
from wardround.workflows.pain.sampling import CLASSES, federation_of, held_out, session_parts, shard_parts
from wardround.workflows.pain.scores import PersonScore, score

WAYS = {"C": "centralized", "F": "fed_avg", "FP": "layer_split", "FL": "local"}
STARTS = ("N", "C", "F")
ScoresByMethod = dict[str, list[PersonScore]]


@dataclass(frozen=True)
class PainSettings:
    """As in the thesis by default; smaller numbers for a smaller machine."""

    model: dict[str, Any] = field(default_factory=lambda: {"flip": True, "rotation": 10.0, "crop": 215})
    learning_rate: float = 0.001
    batch_size: int = 32
    local_epochs: int = 1
    rounds: int = 30
    patience: int = 5
    threshold: int = 200
    shards: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    buffer: bool = False
    fallback: bool = False
    ways: tuple[str, ...] = tuple(WAYS)
    starts: tuple[str, ...] = STARTS


class PainExperiment:
    """One seed: group 1 to pre-train, group 2 to train and test."""

    def __init__(self, first: PainFrames, second: PainFrames, settings: PainSettings, seed: int) -> None:
        self.first, self.second, self.settings, self.seed = first, second, settings, seed
        task = Task(second.x.shape[1:], CLASSES, "pain")
        self.model: Model = registry.find("model", "pain_cnn").build(task, **settings.model)
        self.algorithms = {way: self._algorithm(way) for way in WAYS}
        self.random: Params = jax.jit(self.model.init)(jax.random.key(seed))

    def _algorithm(self, way: str) -> Algorithm:
        said = self.settings
        common: dict[str, Any] = {
            "learning_rate": said.learning_rate,
            "batch_size": said.batch_size,
            "local_epochs": said.local_epochs,
        }
        component = registry.find("algorithm", WAYS[way])
        if way == "FP":
            names = list(jax.eval_shape(self.model.init, jax.random.key(0)))
            lower = sorted({name.split("/")[0] for name in names if name.startswith("conv")})
            norms = [layer.replace("conv", "norm") for layer in lower]
            common |= {
                "shared": lower + [norm for norm in norms if any(name.startswith(f"{norm}/") for name in names)],
                "fallback": said.fallback,
            }
        aggregator = registry.find("aggregator", "weighted_mean").build()
        made: Algorithm = component.build(self.model, aggregator, **common)
        return made

    def train(
        self, way: str, federation: Federation, params: Params, progress: Progress | None = None
    ) -> tuple[Progress, int]:
        """The best state by the weighted validation loss (the last one without validation rows), and its rounds."""
        said, validates = self.settings, bool(federation.counts[:, 1].sum())
        with Simulation(federation, seed=self.seed) as engine:
            found = fit(
                self.algorithms[way],
                engine,
                params,
                everyone(len(federation.sites)),
                Schedule(said.rounds),
                validates=validates,
                stopping=EarlyStopping(said.patience) if validates else None,
                start=progress,
            )
        return found.progress, found.rounds

    def pretrain(self, way: str) -> Params:
        """The common model after training on the first group."""
        generator = np.random.default_rng((self.seed, 1))
        federation = federation_of(self.first, held_out(self.first, generator))
        progress, _ = self.train(way, federation, self.random)
        params: Params = jax.device_get(self.algorithms[way].params(progress.server))
        return params

    def test(self, way: str, federation: Federation, progress: Progress, session: int) -> list[PersonScore]:
        """Every person's test frames, by the model that this person's site uses."""
        with Simulation(federation, seed=self.seed) as engine:
            found = engine.predict(self.algorithms[way], progress, "test")
        pain, first = found.predicted[:, 1], found.first
        told = [
            score(site, session, pain[first[i] : first[i + 1]], found.actual[first[i] : first[i + 1]])
            for i, site in enumerate(federation.sites)
        ]
        return [one for one in told if one is not None]

    def begin(self, way: str, federation: Federation, params: Params) -> Progress:
        with Simulation(federation, seed=self.seed) as engine:
            return engine.begin(self.algorithms[way], params)

    def over_sessions(self, way: str, params: Params, *, learns: bool = True) -> list[PersonScore]:
        """Tested on session 1 as it starts, then trained on the sessions so far and tested on the next but one."""
        found: list[PersonScore] = []
        progress: Progress | None = None
        last = int(self.second.session.max())
        for session in range(-1, last - 1):
            # The same draws for every way and start, so that they are compared on the same frames.
            generator = np.random.default_rng((self.seed, 2, session + 1))
            parts = session_parts(
                self.second, session, self.settings.threshold, generator, buffer=self.settings.buffer and session >= 0
            )
            federation = federation_of(self.second, parts)
            if progress is None:
                progress = self.begin(way, federation, params)
            if learns and session >= 0 and federation.counts[:, 0].any():
                progress, _ = self.train(way, federation, params, progress)
            found += self.test(way, federation, progress, session + 2)
        return found

    def over_shards(self, way: str, params: Params, *, balanced: bool) -> list[PersonScore]:
        """Trained anew on every cumulative shard; `session` of a score is the shard in percent."""
        found: list[PersonScore] = []
        for share in self.settings.shards:
            generator = np.random.default_rng((self.seed, 3, balanced))
            federation = federation_of(self.second, shard_parts(self.second, share, generator, balanced=balanced))
            progress, _ = self.train(way, federation, params)
            found += self.test(way, federation, progress, round(100 * share))
        return found

    def run(self, setting: str = "sessions", told: Callable[[str], None] = lambda name: None) -> ScoresByMethod:
        """All rows of table 7.1 in one of the settings sessions, balanced, unbalanced."""
        later = np.any((self.second.y > 0) & (self.second.session > 0))
        if setting == "sessions" and not later:
            raise Refusal(
                "nobody of the group that is tested feels pain after the first session, so nothing can be tested",
                where=f"the people {', '.join(self.second.subjects)}",
                remedy="give more sessions, choose other people to pre-train (--first), or take shards (--setting)",
            )
        starts = {"N": self.random}
        starts |= {start: self.pretrain(start) for start in ("C", "F") if start in self.settings.starts}
        found: ScoresByMethod = {}

        def add(name: str, way: str, start: str, *, learns: bool = True) -> None:
            if setting == "sessions":
                found[name] = self.over_sessions(way, starts[start], learns=learns)
            elif learns:
                found[name] = self.over_shards(way, starts[start], balanced=setting == "balanced")
                if not found[name]:
                    raise Refusal(
                        "none of the frames that were drawn to test shows pain",
                        where=f"the people {', '.join(self.second.subjects)}",
                        remedy="give more frames, or another seed",
                    )
            told(name)

        add("RANDOM", "F", "N", learns=False)
        for start in ("C", "F"):
            if start in starts:
                add(f"B{start}-CNN", "F", start, learns=False)
        for way in self.settings.ways:
            for start in self.settings.starts:
                if not (way == "C" and start == "F"):  # central training has no use for a federated start
                    add(f"{way}-CNN ({start})", way, start)
        return found


GROUP_1 = ("42", "47", "49", "66", "95", "97", "103", "106", "108", "121", "123", "124")
"""Of table 3.1: the people who pre-train, where the real faces are read."""


def two_groups(frames: PainFrames, *, flip: bool = False, first: Sequence[str] = ()) -> tuple[PainFrames, PainFrames]:
    """Group 1 pre-trains, group 2 is trained and tested on; flipped, they change places.

    `first` names the people of group 1. Without it they are those of the thesis where all of them are there (whatever
    zeros or letters stand around their numbers), else every other person in natural order.
    """
    people = frames.subjects
    numbers = {person: "".join(filter(str.isdigit, person)).lstrip("0") for person in people}
    chosen = list(first) or [person for person in people if numbers[person] in GROUP_1]
    unknown = [person for person in first if person not in people]
    if not first and len(chosen) < len(GROUP_1):
        chosen = people[::2]
    if unknown or not 0 < len(chosen) < len(people):
        raise Refusal(
            f"nobody is called {unknown[0]}" if unknown else "two groups need at least one person each",
            where="the group that pre-trains",
            remedy=f"choose some, not all, of {', '.join(people)}",
        )
    groups = (chosen, [person for person in people if person not in chosen])
    one, other = (frames.of(group) for group in (groups[::-1] if flip else groups))
    return one, other
