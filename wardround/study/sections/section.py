"""What all tables of the study file share: keys that are known, or a component's name and settings."""

from typing import Any

from pydantic import BaseModel, ConfigDict

Settings = dict[str, Any]


class Section(BaseModel):
    """A table of the study file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Named(BaseModel):
    """A table that names a component; the other keys are that component's settings."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def settings(self) -> Settings:
        return dict(self.model_extra or {})
