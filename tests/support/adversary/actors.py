"""A coordinator that lies: it conducts a study honestly as far as it likes, and then asks a site whatever it wants.

It sits on a consortium over the transport `in_process`, so everything below it is real: homes, keys, policies,
approvals, handlers, audit logs. What it was answered it remembers, to send again as it was or altered.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.in_process import Consortium
from wardround import __version__
from wardround.core.contracts import Message
from wardround.deploy.protocol.replies import Reply, read_reply
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import PROTOCOL, decode, digest, encode
from wardround.study.file import Study

NOTHING = Message({})


class Enough(BaseException):
    """The honest part ends here."""


class Exchange(NamedTuple):
    """A request that was sent, and the reply."""

    site: str
    topic: str
    body: bytes
    reply: Reply

    @property
    def header(self) -> dict[str, Any]:
        return decode(self.body)[0]

    @property
    def message(self) -> Message:
        return decode(self.body)[1]


class LyingCoordinator:
    """Of one study; `seen` is all that was asked and answered, the honest requests and its own."""

    def __init__(self, consortium: Consortium, study: Study) -> None:
        self.consortium, self.study = consortium, study
        self.seen: list[Exchange] = []

    def conduct(self, until: str | None = None, count: int = 1) -> None:
        """Honestly to the end, or until a request of this topic is about to be sent for the `count`-th time."""
        ask = self.consortium.ask
        passed = 0

        def listen(site: str, topic: str, body: bytes, within: float) -> bytes:
            nonlocal passed
            if topic == until:
                passed += 1
                if passed >= count:
                    raise Enough
            reply = ask(site, topic, body, within)
            if topic != "offer":
                self.seen.append(Exchange(site, topic, body, read_reply(reply)))
            return reply

        self.consortium.ask = listen  # type: ignore[method-assign]
        try:
            self.consortium.conduct(self.study)
        except Enough:
            pass
        finally:
            self.consortium.ask = ask  # type: ignore[method-assign]

    def last(self, site: str, topic: str, **words: Any) -> Exchange:
        """The last exchange with a site about a topic, with these words in its header."""
        found = [
            one for one in self.seen if (one.site, one.topic) == (site, topic) and words.items() <= one.header.items()
        ]
        return found[-1]

    def deliver(self, site: str, topic: str, body: bytes) -> Reply:
        """Hand bytes to a site as they are."""
        reply = read_reply(self.consortium.transport.ask(site, topic, body, 60.0))
        self.seen.append(Exchange(site, topic, body, reply))
        return reply

    def send(self, site: str, topic: str, words: Mapping[str, Any], message: Message = NOTHING) -> Reply:
        """A request of its own making; what is not said is as an honest coordinator would say it."""
        usual = {"protocol": PROTOCOL, "wardround": __version__, "study": study_id(self.study), "round": 0}
        header = {**usual, **words}
        nonce = {} if "nonce" in header else {"nonce": digest(header, message)[:32]}
        return self.deliver(site, topic, encode({**header, **nonce}, message))

    def alter(self, one: Exchange, message: Message | None = None, **words: Any) -> Reply:
        """An earlier request with other words, or another message, under a nonce of its own."""
        header = {key: value for key, value in {**one.header, **words}.items() if key != "nonce" or "nonce" in words}
        return self.send(one.site, one.topic, header, one.message if message is None else message)

    def replay(self, one: Exchange) -> Reply:
        """The very same bytes."""
        return self.deliver(one.site, one.topic, one.body)
