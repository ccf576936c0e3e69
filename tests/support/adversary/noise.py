"""A private study of the demonstration's patients, and a coordinator that asks its sites whatever it likes."""

from typing import Any

from tests.support import in_process
from wardround.core.contracts import Message
from wardround.deploy.protocol.wire import decode, encode
from wardround.study.file import Study

YES_NO = (
    *("contact", "fever", "conjunctivitis", "diarrhoea", "dysphagia", "haemorrhage", "vomiting", "weakness"),
    *("headache", "cough", "myalgia"),
)
DECLARED: dict[str, Any] = {
    "ranges": {"age": [0, 100], "days_since_symptoms": [0, 20], "temperature": [34, 42]},
    "categories": {
        "sex": ["female", "male"],
        "malaria_test": ["negative", "positive"],
        **{name: ["no", "yes"] for name in YES_NO},
    },
}
"""All columns of the demonstration's patients."""


def private_study(name: str, privacy: dict[str, Any], *, declared: bool = True, **tables: Any) -> Study:
    """With all columns declared, and the sites that take part named, as the coordinator fills them in."""
    preparation = {"smallest_cell": 10, **(DECLARED if declared else {})}
    data = {"preparation": preparation, **tables.pop("data", {})}
    deploy = {"sites": list(in_process.NAMES), **tables.pop("deploy", {})}
    rounds = tables.pop("rounds", 3)
    study: Study = in_process.study_of(name, rounds, privacy=privacy, data=data, deploy=deploy, **tables)
    return study


class LyingCoordinator:
    """Keeps the last honest request of every topic to a site, and sends altered ones."""

    def __init__(self, consortium: Any, site: str) -> None:
        self.consortium, self.site = consortium, site
        self.honest: dict[str, bytes] = {}
        self.replies: dict[str, bytes] = {}
        self._ask = consortium.ask

    def __enter__(self) -> "LyingCoordinator":
        def heard(site: str, topic: str, body: bytes, within: float) -> bytes:
            reply: bytes = self._ask(site, topic, body, within)
            if site == self.site:
                self.honest[topic], self.replies[topic] = body, reply
            return reply

        self.consortium.ask = heard
        return self

    def __exit__(self, *_: Any) -> None:
        self.consortium.ask = self._ask

    def send(self, topic: str, header: dict[str, Any], message: Message) -> tuple[dict[str, Any], Message]:
        answer = self.consortium.handlers[self.site].answer(topic, "server", encode(header, message))
        return decode(answer)

    def again(self, topic: str, **changes: Any) -> tuple[dict[str, Any], Message]:
        """The last request of a topic, with other words."""
        header, message = decode(self.honest[topic])
        return self.send(topic, {**header, **changes}, message)
