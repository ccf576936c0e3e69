"""What a site says of a request in one word; the words are those on the wire and in a site's decisions."""

from enum import StrEnum


class Status(StrEnum):
    """How a site answers a request."""

    OK = "ok"
    """Here is the answer."""
    WAITING = "waiting"
    """Not yet: its administrator has not decided, or its disk is full. Ask again."""
    DENIED = "denied"
    """Its administrator, or its policy, does not allow the study."""
    WITHDRAWN = "withdrawn"
    """It has left the study for good."""
    REFUSED = "refused"
    """It does not do this; asked again it would say the same."""
    SPENT = "spent"
    """It has no privacy budget for another round."""
    CLOSED = "closed"
    """The second server has opened this round already, for another request; asked again it would say the same."""
    DIVERGED = "diverged"
    """It trained, and the answer is not a finite number."""

    @property
    def is_answer(self) -> bool:
        """Whether the site did what it was asked for."""
        return self in (Status.OK, Status.DIVERGED)

    @property
    def is_departure(self) -> bool:
        """Whether the site takes no further part in the study."""
        return self in (Status.DENIED, Status.WITHDRAWN)
