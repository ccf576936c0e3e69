"""What a coordinator asks a site: one frozen class for each kind of question, how it becomes bytes, and back.

The order of the words is part of the format: the nonce is a hash over them, and a site knows a repeated request by it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from wardround import __version__
from wardround.core.components.recipes import Recipe, from_json
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol.wire import PROTOCOL, Malformed, digest, encode

NOTHING = Message({})
STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
Words = Mapping[str, Any]


class Topic(StrEnum):
    """What a request is about. The site's worker has a method of this name for all but the offer and what only the
    second server is asked."""

    OFFER = "offer"
    QUERY = "query"
    SETTLE = "settle"
    PREPARE = "prepare"
    BEGIN = "begin"
    ROUND = "round"
    SECURE = "secure"
    HALVES = "halves"
    OPEN = "open"
    """To the second server alone."""
    JUDGE = "judge"
    FIGURES = "figures"
    FINISH = "finish"
    AGREE = "agree"
    ANALYSIS = "analysis"


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
    """Put a study before the site's administrator; `others` are the other sites' training rows, where known.

    `amends` is the study in whose place it is asked for.
    """

    topic = Topic.OFFER
    content: Words
    submitter: str
    others: int | None = None
    amends: str = ""

    def words(self) -> dict[str, Any]:
        own = {"content": self.content, "submitter": self.submitter, "others": self.others}
        return {**own, "amends": self.amends} if self.amends else own  # an older site does not know the word


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

    @cached_property
    def recipe(self) -> Recipe:
        """Of the algorithm."""
        return from_json(self.algorithm)


@dataclass(frozen=True)
class AboutMethod(RequestBody):
    """What goes with the words of a round: how the site trains, by which transforms, from which seed."""

    method: TrainRound

    @property
    def algorithm(self) -> Words:
        return self.method.algorithm

    @property
    def recipe(self) -> Recipe:
        return self.method.recipe

    @property
    def transforms(self) -> Sequence[Words]:
        return self.method.transforms

    @property
    def seed(self) -> int:
        return self.method.seed


@dataclass(frozen=True)
class SecureStep(AboutMethod):
    """One step of a round of which only the sum is opened; certificates come with the first one alone."""

    topic = Topic.SECURE
    step: str
    session: Words
    letter: Words | None
    certificates: Mapping[str, str] | None = None

    def words(self) -> dict[str, Any]:
        own = {"step": self.step, "session": self.session, "letter": self.letter}
        shown = {} if self.certificates is None else {"certificates": self.certificates}
        return {**self.method.words(), **own, **shown}


@dataclass(frozen=True)
class ShareHalves(AboutMethod):
    """A round for two servers: the site's answer in two halves. `row` is the seed of what hides the first half."""

    topic = Topic.HALVES
    meeting: Words
    row: str
    second: str
    """The second server's certificate."""

    def words(self) -> dict[str, Any]:
        own = {"meeting": self.meeting, "row": self.row, "second": self.second}
        return {**self.method.words(), **own}


@dataclass(frozen=True)
class OpenSum(RequestBody):
    """To the second server: what it needs to open the products, to choose, and to give its half of the sum.

    `roll` are the sites whose rows come in the message, `parcels` what they sealed, `quorum` how many must be usable.
    """

    topic = Topic.OPEN
    meeting: Words
    roll: Sequence[str]
    parcels: Mapping[str, Words]
    certificates: Mapping[str, str]
    check: str
    quorum: int


@dataclass(frozen=True)
class AboutModel(AboutMethod):
    """Something about the model as it is now: how well it does (judge, figures), or that it is to be kept (finish)."""

    asked: Topic
    part: str

    @property
    def topic(self) -> Topic:
        return self.asked

    def words(self) -> dict[str, Any]:
        return {**self.method.words(), "part": self.part}


@dataclass(frozen=True)
class AgreeColumns(RequestBody):
    """What all sites take the columns of an analysis to be: the kind of each, the words of categories, all sites."""

    topic = Topic.AGREE
    kinds: Mapping[str, str]
    levels: Mapping[str, Sequence[str]]
    numbers: Sequence[str]


@dataclass(frozen=True)
class AskAnalysis(RequestBody):
    """Statistics of the site's own rows, by an installed analysis; what exactly is asked comes in the message."""

    topic = Topic.ANALYSIS
    analysis: Words

    @cached_property
    def recipe(self) -> Recipe:
        return from_json(self.analysis)


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
    # Not the version: a coordinator that is upgraded in the middle of a round must ask the same question.
    own = {"protocol": PROTOCOL, "study": study, "round": number}
    header = {**own, **({} if course is None else {"course": course}), **question.words()}
    # The nonce is the same for the same question and for no other: asked again, a site must recognise it.
    nonce = digest(header, message)[:32]
    return Request(study, number, nonce, encode({**header, "nonce": nonce}, message))


Question = TypeVar("Question", bound=RequestBody)


@dataclass(frozen=True)
class Received(Generic[Question]):
    """A request about an approved study as the site reads it: the question, and what it is bound to."""

    question: Question
    study: str
    round: int
    course: int | None
    """Which training of a choice of partners it belongs to."""
    header: Words
    """As it came, for what is hashed or kept word by word."""
    digest: str = ""
    """Of the bytes by which the site knows the request again."""


QUESTIONS: Mapping[Topic, type[RequestBody]] = {
    Topic.OFFER: OfferStudy,
    Topic.QUERY: AskQuery,
    Topic.SETTLE: SettleSchema,
    Topic.PREPARE: PrepareRows,
    Topic.BEGIN: BeginTraining,
    Topic.ROUND: TrainRound,
    Topic.SECURE: SecureStep,
    Topic.HALVES: ShareHalves,
    Topic.OPEN: OpenSum,
    Topic.JUDGE: AboutModel,
    Topic.FIGURES: AboutModel,
    Topic.FINISH: AboutModel,
    Topic.AGREE: AgreeColumns,
    Topic.ANALYSIS: AskAnalysis,
}


BINDING = frozenset({"protocol", "wardround", "study", "round", "course", "nonce", "arrays", "meta"})
"""Words that every request about a study may have."""


def known_words(topic: Topic) -> frozenset[str]:
    kind = QUESTIONS[topic]
    own = {one.name for one in fields(kind)} - {"method", "asked"}
    return BINDING | own | ({one.name for one in fields(TrainRound)} if issubclass(kind, AboutMethod) else set())


KNOWN: Mapping[Topic, frozenset[str]] = {topic: known_words(topic) for topic in QUESTIONS}


def refuse_unknown_words(topic: Topic, header: Words) -> None:
    """A word that nobody reads would only make two requests of one."""
    if not KNOWN[topic].issuperset(header):
        raise Refusal("the request has words that are not known here", remedy="install the same version on both")


SMALL = 1 << 22
"""Bytes of a request that carries no model."""


def require_small(content: bytes) -> None:
    if len(content) > SMALL:
        raise Refusal(f"the request has {len(content)} bytes, and {SMALL} are allowed", remedy="ask for what is known")


def read_request(topic: Topic, header: Words, digest: str = "") -> Received[Any]:
    """The typed request in a header; raises Malformed, naming the word, where one is missing or of another type."""
    kind = QUESTIONS[topic]
    words = {one.name: header[one.name] for one in fields(kind) if one.name in header}
    if issubclass(kind, AboutMethod):
        method = {one.name: header[one.name] for one in fields(TrainRound) if one.name in header}
        words |= {"method": check_words(TrainRound, method)}
    if kind is AboutModel:
        words |= {"asked": topic}
    bound = check_words(RequestBinding, {key: header[key] for key in ("study", "round", "course") if key in header})
    return Received(check_words(kind, words), bound.study, bound.round, bound.course, header, digest)


def study_in(header: Words) -> str:
    """The study that a request names; it is part of paths, so it must look like a name."""
    study = header.get("study")
    if not isinstance(study, str) or not STUDY.fullmatch(study):
        raise Refusal("the request names no study", remedy="install the same version of wardround on both sides")
    return study


@dataclass(frozen=True)
class RequestBinding:
    """What every request about a study is bound to."""

    study: str
    round: int
    course: int | None = None


CHECKERS: Mapping[type[Any], Mapping[str, TypeAdapter[Any]]] = {
    kind: {name: TypeAdapter(hint) for name, hint in get_type_hints(kind).items()}
    for kind in {*QUESTIONS.values(), RequestBinding}
}


def check_words(kind: type[Any], words: Words) -> Any:
    """The words as this class, each of its own type."""
    found = {}
    for one in fields(kind):
        if one.name not in words:
            if one.default is MISSING:
                raise Malformed(f"'{one.name}' is missing")
            continue
        try:
            found[one.name] = CHECKERS[kind][one.name].validate_python(words[one.name], strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join([one.name, *(str(part) for part in first["loc"])])
            raise Malformed(f"'{place}': {first['msg'][0].lower()}{first['msg'][1:]}") from None
    return kind(**found)


def request_of_site(words: Words) -> bytes:
    """A request about the site itself and no study: its version, its certificate, its audit log."""
    return encode({"protocol": PROTOCOL, "wardround": __version__, **words})
