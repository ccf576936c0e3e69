"""How much is on its way, and how long a transfer may take."""

from wardround.deploy.transport.transfers.line import (
    FIRST_AHEAD,
    LARGEST_PART,
    LEAST_AHEAD,
    MOST_AHEAD,
    PAUSE,
    SMALLEST_PART,
    OneWayLine,
)


def moved(line: OneWayLine, bytes_a_second: float, seconds: float, delay: float = 0.01) -> float:
    """A line of this speed, kept as full as it may be; gives the longest that a sign of life stood behind data."""
    clock, queue, free_at, worst = 0.0, [], 0.0, 0.0
    while clock < seconds:
        while line.on_way + line.part <= line.ahead or not queue:
            free_at = max(free_at, clock) + line.part / bytes_a_second
            queue.append((free_at + delay, clock, line.part))
            line.send(line.part)
        worst = max(worst, free_at - clock)
        clock, sent, count = queue.pop(0)
        line.arrive(count, clock - sent)
    return worst


def test_a_second_or_two_are_on_their_way_whatever_the_speed() -> None:
    """A sign of life has 15 s; it never stands behind more than 5 s of data, and a fast line is used in full."""
    for kilobits in (64, 200, 1000, 10_000):
        line = OneWayLine()
        worst = moved(line, kilobits * 125, 120.0)
        assert worst < 5, kilobits
    for speed, delay in ((100e6, 0.001), (2e6, 0.3)):
        line = OneWayLine()
        moved(line, speed, 20.0, delay)
        assert line.ahead >= min(MOST_AHEAD, speed * delay)  # enough to keep the line full
    assert line.part <= LARGEST_PART


def test_at_first_little_is_sent() -> None:
    line = OneWayLine()
    assert (line.ahead, line.part) == (FIRST_AHEAD, SMALLEST_PART)
    for _ in range(100):
        line.send(SMALLEST_PART)
        line.arrive(SMALLEST_PART, 60.0)
    assert line.ahead == LEAST_AHEAD


def test_deadlines_follow_from_the_bytes_and_the_speed() -> None:
    line = OneWayLine()
    # Nothing is known: 26 MB at 4,000 bytes a second are 6,500 s, beside the 45 s that each transfer has.
    assert line.allowance(26_000_000) == PAUSE + 6500
    # 26 MB in 208 s are 125,000 bytes a second; three times 208 s are 624 s.
    line.learn(26_000_000, 208.0)
    assert line.allowance(26_000_000) == PAUSE + 624
    # It has become ten times slower: what it shows counts by half, and nobody is given more than the slowest line.
    line.learn(26_000_000, 2080.0)
    assert line.rate == 0.5 * (125_000 + 12_500)
    line.rate = 100.0
    assert line.allowance(4000) == PAUSE + 1
    # A few bytes tell nothing.
    line.learn(100, 100.0)
    assert line.rate == 100.0
