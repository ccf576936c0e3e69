"""How training went, round by round: the records of `rounds.jsonl`, put together by method, repeat and asking site."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wardround.runs.fields import Json, mapping, number, sentences, total, whole
from wardround.runs.result import Cost


@dataclass(frozen=True)
class Diagnostics:
    """What an algorithm told of itself, in the rounds in which it did: one number a hospital, by the number's name."""

    rounds: tuple[int, ...] = ()
    sites: Mapping[str, Mapping[str, tuple[float | None, ...]]] = field(default_factory=dict)
    stopped: int | None = None
    """The first round that was told as standing still, where the algorithm itself ended the training."""
    skipped: int = 0
    """Rounds in which there was nothing to learn from."""


@dataclass(frozen=True)
class ChoiceRound:
    """How partners were chosen before training; records call it round 0."""

    chosen: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Course:
    """How one repeat of one method went, round by round."""

    method: str
    repeat: int
    rounds: tuple[int, ...]
    """Of training, so without the choice of partners before."""
    loss: tuple[float | None, ...]
    site_loss: Mapping[str, tuple[float | None, ...]]
    cost: Cost
    """Of all rounds and the choice of partners."""
    diagnostics: Diagnostics = Diagnostics()
    choice: ChoiceRound | None = None
    answered: tuple[tuple[str, ...], ...] = ()
    """Who answered, in each round."""
    missing: tuple[Mapping[str, str], ...] = ()
    """Who was asked and did not answer, and why, in each round of a study over real hospitals."""
    user: str = ""
    """The site it was trained for, where sites asked in turn."""
    accuracy: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """On every site's test patients, where a study follows it."""


def read_courses(records: Iterable[Json]) -> Iterable[Course]:
    """By method, repeat and asking site, in the order of rounds; of a round done again the last counts."""
    groups: dict[tuple[str, int, str], dict[int, Json]] = {}
    for record in records:
        key = (str(record.get("method", "")), whole(record.get("repeat")) or 0, str(record.get("user") or ""))
        groups.setdefault(key, {})[whole(record.get("round")) or 0] = record
    for (method, repeat, user), by_round in groups.items():
        rounds = tuple(number for number in sorted(by_round) if number > 0)
        followed = [mapping(mapping(by_round[r].get("measures")).get("test_accuracy")) for r in rounds]
        tested = dict.fromkeys(name for one in followed for name in mapping(one.get("sites")))
        losses = [mapping(mapping(by_round[r].get("measures")).get("validation_loss")) for r in rounds]
        names = dict.fromkeys(name for loss in losses for name in mapping(loss.get("sites")))
        yield Course(
            method=method,
            repeat=repeat,
            rounds=rounds,
            loss=tuple(number(loss.get("weighted")) for loss in losses),
            site_loss={n: tuple(number(mapping(loss.get("sites")).get(n)) for loss in losses) for n in names},
            cost=cost_of(by_round.values()),
            diagnostics=read_diagnostics(
                [(r, mapping(mapping(by_round[r].get("measures")).get("told"))) for r in rounds]
            ),
            choice=read_choice(by_round[0]) if 0 in by_round else None,
            answered=tuple(sentences(by_round[r].get("sites")) for r in rounds),
            missing=tuple(read_missing(by_round[r]) for r in rounds),
            user=user,
            accuracy={n: tuple(number(mapping(one.get("sites")).get(n)) for one in followed) for n in tested},
        )


def read_missing(record: Json) -> dict[str, str]:
    absent = mapping(mapping(record.get("measures")).get("absent"))
    return {str(site): str(why) for site, why in absent.items()}


def cost_of(records: Iterable[Json]) -> Cost:
    kept = list(records)
    return Cost(
        bytes_down=total([number(record.get("bytes_down")) for record in kept]),
        bytes_up=total([number(record.get("bytes_up")) for record in kept]),
        seconds=total([number(record.get("seconds")) for record in kept]),
    )


def read_diagnostics(by_round: Iterable[tuple[int, Json]]) -> Diagnostics:
    """Rounds between two evaluations tell nothing and are left out."""
    spoken = [(r, told) for r, told in by_round if told]
    names = dict.fromkeys(name for _, told in spoken for name, value in told.items() if mapping(value))
    sites = {name: dict.fromkeys(site for _, told in spoken for site in mapping(told.get(name))) for name in names}
    return Diagnostics(
        rounds=tuple(r for r, _ in spoken),
        sites={
            name: {site: tuple(number(mapping(told.get(name)).get(site)) for _, told in spoken) for site in own}
            for name, own in sites.items()
        },
        stopped=next((r for r, told in spoken if told.get("stopped") is True), None),
        skipped=max((whole(told.get("skipped")) or 0 for _, told in spoken), default=0),
    )


def read_choice(record: Json) -> ChoiceRound:
    told = mapping(mapping(record.get("measures")).get("told"))
    scores = {str(site): x for site, value in mapping(told.get("score")).items() if (x := number(value)) is not None}
    return ChoiceRound(sentences(told.get("chosen")), scores, cost_of([record]))
