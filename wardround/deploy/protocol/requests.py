"""What a coordinator asks a site: one frozen class for each kind of question, and how it becomes bytes.

The order of the words is part of the format: the nonce is a hash over them, and a site knows a repeated request by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

from wardround import __version__
from wardround.core.contracts import Message
from wardround.deploy.protocol.wire import PROTOCOL, digest, encode

NOTHING = Message({})
Words = Mapping[str, Any]


class Topic(StrEnum):
    """What a request is about. The site's worker has a method of this name for all but the offer."""

    OFFER = "offer"
    QUERY = "query"
    SETTLE = "settle"
    PREPARE = "prepare"
    BEGIN = "begin"
    ROUND = "round"
    SECURE = "secure"
    JUDGE = "judge"
    FIGURES = "figures"
    FINISH = "finish"


@dataclass(frozen=True)
class RequestBody:
    """What a request asks: its topic, and words that plain JSON can hold."""

    @property
    def topic(self) -> Topic:
        raise NotImplementedError

    def words(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class OfferStudy(RequestBody):
    """Put a study before the site's administrator; `others` are the other sites' training rows, where known."""

    topic = Topic.OFFER
    content: Words
    submitter: str
    others: int | None = None


@dataclass(frozen=True)
class AskQuery(RequestBody):
    """A statistic by an installed query, on the training rows or, for its card, on the raw table."""

    topic = Topic.QUERY
    query: Words
    on: str


@dataclass(frozen=True)
class SettleSchema(RequestBody):
    """The columns that all sites agree on, and the seed by which each splits its rows."""

    topic = Topic.SETTLE
    schema: Words
    seed: int


@dataclass(frozen=True)
class PrepareRows(RequestBody):
    """How columns become numbers; `numbers` are all sites' names in the order of their numbers."""

    topic = Topic.PREPARE
    preparation: str
    positive: int
    numbers: Sequence[str]


@dataclass(frozen=True)
class BeginTraining(RequestBody):
    """The model before the first round, which comes in the message."""

    topic = Topic.BEGIN
    algorithm: Words


@dataclass(frozen=True)
class TrainRound(RequestBody):
    """One site's half of a round."""

    topic = Topic.ROUND
    algorithm: Words
    transforms: Sequence[Words]
    seed: int


@dataclass(frozen=True)
class SecureStep(RequestBody):
    """One step of a round of which only the sum is opened; certificates come with the first one alone."""

    topic = Topic.SECURE
    method: TrainRound
    step: str
    session: Words
    letter: Words | None
    certificates: Mapping[str, str] | None = None

    def words(self) -> dict[str, Any]:
        own = {"step": self.step, "session": self.session, "letter": self.letter}
        shown = {} if self.certificates is None else {"certificates": self.certificates}
        return {**self.method.words(), **own, **shown}


@dataclass(frozen=True)
class AboutModel(RequestBody):
    """Something about the model as it is now: how well it does (judge, figures), or that it is to be kept (finish)."""

    asked: Topic
    method: TrainRound
    part: str

    @property
    def topic(self) -> Topic:
        return self.asked

    def words(self) -> dict[str, Any]:
        return {**self.method.words(), "part": self.part}


class Request(NamedTuple):
    """A question about one study and round as bytes, and the nonce by which its answer is known."""

    study: str
    round: int
    nonce: str
    body: bytes


def request_of(
    question: RequestBody, message: Message = NOTHING, *, study: str, number: int, course: int | None = None
) -> Request:
    """The request to send; `course` tells which training of a choice of partners it belongs to."""
    own = {"protocol": PROTOCOL, "wardround": __version__, "study": study, "round": number}
    header = {**own, **({} if course is None else {"course": course}), **question.words()}
    # The nonce is the same for the same question and for no other: asked again, a site must recognise it.
    nonce = digest(header, message)[:32]
    return Request(study, number, nonce, encode({**header, "nonce": nonce}, message))


def request_of_site(words: Words) -> bytes:
    """A request about the site itself and no study: its version, its certificate, its audit log."""
    return encode({"protocol": PROTOCOL, "wardround": __version__, **words})
