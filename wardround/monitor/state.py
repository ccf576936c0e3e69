"""What a monitor remembers between calls: sums, counts and capital, no patient's values.

The file belongs to one model as it was adapted to one site, and is refused for any other: capital won from one model
says nothing about the next.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.monitor.bets import Capital
from wardround.runs.json_files import read_json

FORMAT: Literal[1] = 1
STATE = "monitor.json"


class StatePart(BaseModel):
    """Frozen, and nothing that is not known here."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WatchedColumn(StatePart):
    """One column (or the prediction itself) over its cells, the last of which is what is missing."""

    name: str
    kind: Literal["number", "text", "prediction", "error"]
    edges: tuple[float, ...] = ()
    """Between the cells of a number."""
    categories: tuple[str, ...] = ()
    """One cell each, then one for all others."""
    reference: tuple[int, ...]
    seen: tuple[int, ...]
    """All values that the next patient's is ranked among."""
    capital: Capital

    @property
    def cells(self) -> int:
        return len(self.categories) + 2 if self.kind == "text" else len(self.edges) + 2


class ColumnTally(StatePart):
    """One column in one window."""

    counts: tuple[int, ...]
    outside: int = 0
    """Beyond the range, or none of the categories, of training."""
    total: float = 0.0
    """The sum of (value - training centre) / training scale, of the known values."""
    squares: float = 0.0


class OutcomeTally(StatePart):
    """Patients of one window whose outcome is known."""

    patients: int = 0
    events: float = 0.0
    """With the outcome; of a quantity the sum of observed values."""
    predicted: float = 0.0
    errors: float = 0.0
    """The sum of squared errors (Brier), and of their squares."""
    errors_squared: float = 0.0
    ill: tuple[int, ...] = ()
    """Patients with the outcome over steps of the log-odds of the risk, and those without."""
    well: tuple[int, ...] = ()
    flags: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Flagged rightly, flagged wrongly, missed, left alone rightly."""


class WindowTally(StatePart):
    """All that is known of one window."""

    name: str
    patients: int = 0
    columns: dict[str, ColumnTally] = Field(default_factory=dict)
    outcomes: OutcomeTally = OutcomeTally()
    capital: float = 0.0
    """The log of the highest capital of all bets on calibration while this window was counted."""
    inputs: float = 0.0
    """The same of the bets on the column that won most."""


class AlarmRaised(StatePart):
    """The first time that a bet reached its limit."""

    what: Literal["calibration", "input"]
    column: str | None
    window: str
    capital: float
    limit: float


class MonitorState(StatePart):
    """All of it."""

    format: Literal[1] = FORMAT
    wardround: str = __version__
    model: str
    """The digest of the model and of its adaptation."""
    study: str
    method: str
    target: str
    site: str | None
    every: str | int
    alpha: float
    tolerance: float
    reference: str
    reference_patients: int
    cut: float
    """Parts high risks from low ones, for bets on calibration."""
    threshold: float | None
    """Of two classes, from which risk on a patient is flagged."""
    quantity: bool
    """Whether a value is predicted and not a class."""
    columns: tuple[WatchedColumn, ...]
    calibration: Capital
    error: WatchedColumn | None = None
    """Of a quantity, observed less predicted: its bets stand for calibration."""
    windows: tuple[WindowTally, ...] = ()
    alarms: tuple[AlarmRaised, ...] = ()
    counted: str = ""
    """Marks of patients whose inputs were counted, and of those whose outcome was."""
    settled: str = ""

    @property
    def calibration_limit(self) -> float:
        """Half of the promised rate is for calibration."""
        return 2 / self.alpha

    @property
    def input_limit(self) -> float:
        """The other half is shared by the columns."""
        return 2 * len(self.columns) / self.alpha


def read_state(folder: Path) -> MonitorState | None:
    """The state that an earlier call left, or none."""
    path = folder / STATE
    if not path.is_file():
        return None
    content = read_json(path, "begin a new monitor in another folder")
    if isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise Refusal(
            f"this monitor's state has format {content['format']}, and this version reads {FORMAT}",
            where=str(path),
            remedy=f"install wardround {content.get('wardround', '')} or later",
        )
    try:
        return MonitorState.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(
            f"the monitor's state is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']})",
            where=str(path),
            remedy="restore it from a copy, or begin a new monitor in another folder",
        ) from None
