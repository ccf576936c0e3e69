"""The table [monitor] of a study file: a study that trains nothing and asks the sites whether their model ages."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wardround.core.components.recipes import Recipe
from wardround.core.errors import Refusal

QUERY = "outcomes_by_window"
"""What such a study asks, and all that it asks."""
SMALLEST_CELL = 10
OWN_TABLES = frozenset({"study", "data", "monitor", "deploy"})
"""Tables that mean something beside [monitor]."""
OWN_DATA = frozenset({"source", "target", "site", "path", "preparation"})


class MonitorSection(BaseModel):
    """Which model is looked at, on which outcomes, by which dates."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    study: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}$")
    """The study that trained the model: every site looks at the one that it kept."""
    date: str = Field(min_length=1)
    """The column that says when a patient came."""
    outcome: str = ""
    """The column that says what became of a patient; filled in when the study is queued."""
    date_format: str | None = None
    """How dates are written where it is not year-month-day, such as "%d.%m.%Y"."""
    every: Literal["month", "quarter", "year"] = "month"
    """How long a window is. Small sites tell more in longer ones: a window below a cell is not named."""
    most: int = Field(default=36, ge=1, le=240)
    """Windows that are told, the last ones."""
    smallest_cell: int = Field(default=SMALLEST_CELL, ge=1)
    """Counts are multiples of this, and nothing is told of a window with fewer patients."""

    @property
    def query(self) -> Recipe:
        """The one question, with its settings."""
        said = {"every": self.every, "most": self.most, "smallest_cell": self.smallest_cell}
        return Recipe("query", QUERY, tuple(sorted(said.items())))


def with_data(content: dict[str, Any]) -> dict[str, Any]:
    """A study file in which [monitor] stands for [data]: sites read their own tables as the trained study did."""
    said = content.get("monitor")
    if not isinstance(said, dict) or "data" in content:
        return content
    return {**content, "data": {"source": "csv", "target": said.get("outcome") or "(of the model)"}}


def refuse_unused(study: BaseModel, data: BaseModel, where: str) -> None:
    """What a study with [monitor] says and nobody reads: whoever wrote it expects what does not happen."""
    defaults = {
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in type(study).model_fields.items()
        if name not in OWN_TABLES
    }
    tables = [f"[{name}]" for name, default in defaults.items() if getattr(study, name) != default]
    unused = tables + [f"[data] {key}" for key in data.model_dump(exclude_defaults=True) if key not in OWN_DATA]
    if unused:
        raise Refusal(
            f"a study with [monitor] trains nothing and reads rows as the trained study did: {unused[0]} is not used",
            where=where,
            remedy=f"remove {', '.join(unused)}",
        )
