"""The line to one party, in one direction: how fast it is, how much may be on its way, how long a transfer may take.

What is on its way is kept to about a second of the line, whatever its speed: so a sign of life is never behind minutes
of a model, and a broken line loses little. The amount grows while acknowledgements come at once and shrinks when they
come late, as TCP's does. Deadlines follow from the bytes to move and the speed that the line has shown.
"""

import threading
import time

KILOBYTE = 1 << 10
SMALLEST_PART, LARGEST_PART = 8 * KILOBYTE, 1 << 20
LEAST_AHEAD, FIRST_AHEAD, MOST_AHEAD = 16 * KILOBYTE, 32 * KILOBYTE, 16 << 20
"""Bytes on their way: the fewest, at first, and the most."""
PROMPT, LATE = 0.5, 1.5
"""Seconds beyond the quickest acknowledgement up to which more may be on its way, and from which on less."""
SLOWEST = 4000.0
"""Bytes in a second, 32 kbit/s: what a line must move at least; slower is treated as standing still."""
PATIENCE = 3.0
"""How many times the time that its known speed needs a transfer is given."""
PAUSE = 45.0
"""Seconds that a transfer may stand still, and that every transfer is given beside its bytes."""
TELLING = 64 * KILOBYTE
"""Bytes from which on a transfer tells the speed of its line."""


class OneWayLine:
    """Every method may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ahead = FIRST_AHEAD
        """Bytes that may be on their way."""
        self.on_way = 0
        self.rate = 0.0
        """Bytes in a second that it has shown; 0 when it has shown nothing yet."""
        self._quickest = PROMPT

    @property
    def part(self) -> int:
        """Bytes of the next part of a transfer."""
        return min(LARGEST_PART, max(SMALLEST_PART, self.ahead // 4))

    @property
    def piece(self) -> int:
        """Bytes of a message that travels in one piece."""
        return min(LARGEST_PART, max(LEAST_AHEAD, self.ahead // 2))

    def send(self, count: int) -> None:
        with self._lock:
            self.on_way += count

    def lose(self, count: int) -> None:
        """So many bytes are not on their way any more, and nobody knows where they are."""
        with self._lock:
            self.on_way = max(0, self.on_way - count)

    def arrive(self, count: int, seconds: float) -> None:
        """So many bytes were acknowledged, so long after they were sent."""
        with self._lock:
            full = self.on_way >= self.ahead // 2
            self.on_way = max(0, self.on_way - count)
            self._quickest = min(self._quickest, seconds)
            late = seconds - self._quickest
            if late > LATE:
                self.ahead = max(LEAST_AHEAD, self.ahead - count // 2)
            elif late < PROMPT and full:
                self.ahead = min(MOST_AHEAD, self.ahead + count)

    def learn(self, count: int, seconds: float) -> None:
        """A transfer of so many bytes took so long on the line."""
        if count >= TELLING and seconds > 0:
            with self._lock:
                found = count / seconds
                self.rate = found if not self.rate else 0.5 * (self.rate + found)

    def allowance(self, count: int) -> float:
        """Seconds that a transfer of so many bytes may take on this line."""
        return PAUSE + count / max(SLOWEST, self.rate / PATIENCE)


class Stopwatch:
    """Runs while it is started; `seconds` are those in which it ran."""

    def __init__(self) -> None:
        self._before, self._since = 0.0, 0.0

    def start(self) -> None:
        self._since = self._since or time.monotonic()

    def stop(self) -> None:
        self._before, self._since = self.seconds, 0.0

    @property
    def seconds(self) -> float:
        return self._before + (time.monotonic() - self._since if self._since else 0.0)
