"""One clock: UTC, with its zone, as files hold it."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from wardround.core.clock import now, timestamp, today


@pytest.mark.parametrize(("precision", "length"), [("seconds", 25), ("milliseconds", 29)])
def test_a_timestamp_is_the_time_in_utc_with_its_zone(precision: str, length: int) -> None:
    before = datetime.now(UTC)
    text = timestamp(precision)
    read = datetime.fromisoformat(text)
    assert read.utcoffset() == timedelta(0)
    assert before - timedelta(seconds=1) < read <= now()
    assert len(text) == length


def test_the_day_is_the_day_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the machine stands: of these two places, one always has another day than UTC."""
    for zone in ("Pacific/Kiritimati", "Pacific/Midway"):
        with monkeypatch.context() as local:
            local.setenv("TZ", zone)
            time.tzset()
            before, found, after = datetime.now(UTC).date(), today(), datetime.now(UTC).date()
        time.tzset()
        assert found in (before, after)
