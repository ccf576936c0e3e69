"""What time it is, in UTC: as a moment, as a day, and as files hold it."""

from datetime import UTC, date, datetime


def now() -> datetime:
    return datetime.now(UTC)


def today() -> date:
    return now().date()


def timestamp(precision: str = "seconds") -> str:
    """The time as ISO 8601, with its zone; `precision` as `datetime.isoformat` calls it."""
    return now().isoformat(timespec=precision)
