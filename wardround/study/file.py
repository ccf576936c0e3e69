"""The study file: what a study says, checked key by key before anything is computed.

Its tables are in `study/sections/`, by topic. A study trains a model in rounds, or, where it has the table [analysis],
asks for sums until a method has its answer.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from wardround.core.errors import Refusal
from wardround.engine.registry import suggest_name
from wardround.study.monitor_section import MonitorSection, refuse_unused, with_data
from wardround.study.sections.budget import BudgetSection
from wardround.study.sections.comparison import CaseSection, CompareSection, PartnersSection, TuneSection
from wardround.study.sections.data import CleaningSection, DataSection, PreparationSection
from wardround.study.sections.deployment import DeploySection
from wardround.study.sections.explain import ExplainSection, GapsSection
from wardround.study.sections.privacy import PrivacySection
from wardround.study.sections.rounds import (
    EvaluationSection,
    OperatingPointSection,
    ParticipationSection,
    StoppingSection,
)
from wardround.study.sections.section import Named, Section, Settings

__all__ = [
    "BudgetSection",
    "CaseSection",
    "CleaningSection",
    "CompareSection",
    "DataSection",
    "DeploySection",
    "EvaluationSection",
    "Named",
    "OperatingPointSection",
    "ParticipationSection",
    "PartnersSection",
    "PreparationSection",
    "PrivacySection",
    "Section",
    "Settings",
    "StoppingSection",
    "Study",
    "StudySection",
    "TuneSection",
    "known_keys",
    "parse_study",
    "read_study",
    "refusal_of",
]

OF_TRAINING = (
    "model",
    "algorithm",
    "aggregator",
    "partners",
    "participation",
    "stopping",
    "budget",
    "evaluation",
    "compare",
    "tune",
)
"""Tables that say how a model is trained and judged; an analysis trains none."""


class StudySection(Section):
    """What is asked, how long, and with which seed."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0, lt=2**32)
    rounds: int = Field(default=50, ge=1, le=100_000)
    user: str | None = None
    purpose: str = ""
    """What the model is for, in words; real sites decide by it."""
    metric: str | None = None
    """The measure to report first; by default ROC-AUC, accuracy with more than two classes, RMSE for a regression,
    the C-index for survival."""


class Study(Section):
    """A whole study file."""

    study: StudySection
    data: DataSection
    model: Named = Named(name="logistic")
    algorithm: Named = Named(name="fed_avg")
    aggregator: Named = Named(name="weighted_mean")
    transforms: list[Named] = Field(default_factory=list)
    privacy: PrivacySection | None = None
    partners: PartnersSection | None = None
    deploy: DeploySection = DeploySection()
    participation: ParticipationSection = ParticipationSection()
    stopping: StoppingSection | None = None
    budget: BudgetSection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    compare: CompareSection | None = None
    tune: TuneSection | None = None
    analysis: Named | None = None
    monitor: MonitorSection | None = None
    explain: ExplainSection | None = None
    gaps: GapsSection | None = None

    @model_validator(mode="after")
    def _survival_is_trained(self) -> "Study":
        asks = [name for name in ("analysis", "monitor", "explain", "gaps") if getattr(self, name) is not None]
        if self.data.survival is not None and asks:
            raise ValueError(f"[data] time, event and horizons are for training a model; [{asks[0]}] names its own")
        return self

    @model_serializer(mode="wrap")
    def _one_or_the_other(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The words of a study are its identity: tables that do not concern it are none of them.
        optional = ("analysis", "monitor", "explain", "gaps", "budget")
        absent = {name for name in optional if getattr(self, name) is None}
        unused = absent if {"analysis", "monitor"} <= absent else {*absent, *OF_TRAINING}
        return {key: value for key, value in write(self).items() if key not in unused}


def read_study(path: Path) -> Study:
    """The study in a TOML file; relative paths in it are taken from the file's folder."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal("there is no such study file", where=str(path), remedy="check the path") from None
    except IsADirectoryError:
        raise Refusal("this is a folder, not a study file", where=str(path), remedy="name the .toml file") from None
    except OSError as error:
        raise Refusal(
            f"the study file cannot be read: {error.strerror}", where=str(path), remedy="check the path and its rights"
        ) from None
    except UnicodeDecodeError:
        raise Refusal("the study file is not UTF-8 text", where=str(path), remedy="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(
            f"the study file is not valid TOML: {error}", where=str(path), remedy="correct that line"
        ) from None
    compare = content.get("compare")
    cases = compare.get("cases") if isinstance(compare, dict) else None
    for table in [content, *(cases if isinstance(cases, list) else [])]:
        data = table.get("data") if isinstance(table, dict) else None
        for key in ("path", "embeddings"):
            if isinstance(data, dict) and isinstance(data.get(key), str):
                data[key] = str((path.parent / Path(data[key]).expanduser()).resolve())
        cleaning = data.get("cleaning") if isinstance(data, dict) else None
        if isinstance(cleaning, dict) and isinstance(cleaning.get("rules"), str):
            from wardround.weak_supervision.function import to_words
            from wardround.weak_supervision.function_file import read_functions  # loads pandas

            # The functions become words of the study: it is read elsewhere, where there is no such file.
            file = (path.parent / Path(cleaning["rules"]).expanduser()).resolve()
            cleaning["rules"] = [to_words(one) for one in read_functions(file)]
    explain = content.get("explain")
    files = explain.get("files") if isinstance(explain, dict) else None
    if isinstance(explain, dict) and isinstance(files, dict):
        explain["files"] = {
            name: str((path.parent / Path(file).expanduser()).resolve()) if isinstance(file, str) else file
            for name, file in files.items()
        }
    return parse_study(content, where=str(path))


def parse_study(content: Settings, *, where: str) -> Study:
    try:
        study = Study.model_validate(with_data(content))
    except ValidationError as error:
        raise refusal_of(error, where) from None
    if study.monitor is not None:
        refuse_unused(study, study.data, where)
    elif study.analysis is not None:
        refuse_training(study, where)
    return study


def refuse_training(study: Study, where: str) -> None:
    """An analysis trains no model in rounds and holds no patients back: what says how would be ignored in silence."""
    said, data = study.study, study.data
    tables = [f"[{name}]" for name in OF_TRAINING if name in study.model_fields_set]
    keys = {
        "rounds in [study]": said.rounds != StudySection.model_fields["rounds"].default,
        "user in [study]": said.user is not None,
        "metric in [study]": said.metric is not None,
        "shares in [data]": data.shares != DataSection.model_fields["shares"].default,
        "split_by in [data]": data.split_by is not None,
    }
    unused = [*tables, *(key for key, is_said in keys.items() if is_said)]
    if unused:
        raise Refusal(
            f"{unused[0]} says how a model is trained, and the study has an [analysis], which trains none",
            where=where,
            remedy=f"remove {', '.join(unused)}; or remove [analysis]",
        )


def refusal_of(error: ValidationError, where: str) -> Refusal:
    """The first thing wrong with a study, in words."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key, table = path[-1], ".".join(path[:-1])
    place = f"{where}, {in_brackets(path[:-1])}" if table else where
    if first["type"] == "value_error":  # what is wrong is said by us, of a whole table
        return Refusal(str(first["ctx"]["error"]), where=f"{where}, {in_brackets(path)}", remedy="correct the values")
    if first["type"] == "extra_forbidden":
        return Refusal(f"unknown key '{key}'", where=place, remedy=suggest_name(key, known_keys(path[:-1])))
    if first["type"] == "missing":
        if len(path) == 1:
            return Refusal(f"the table [{key}] is missing", where=where, remedy=f"add a table [{key}]")
        return Refusal(f"the key '{key}' is missing", where=place, remedy=f"add {key} = ...")
    message = first["msg"].replace("Input should", "it should")
    return Refusal(f"'{key}' cannot be {first['input']!r}: {message}", where=place, remedy="correct the value")


def in_brackets(path: Sequence[str]) -> str:
    """A table as a study file writes it.

    >>> in_brackets(["data", "preparation"]), in_brackets(["transforms", "0"])
    ('[data.preparation]', '[[transforms]]')
    """
    named = ".".join(part for part in path if not part.isdigit())
    return f"[[{named}]]" if path[-1:] and path[-1].isdigit() else f"[{named}]"


def known_keys(path: list[str]) -> tuple[str, ...]:
    """The keys that a table of the study file may have."""
    section: Any = Study
    for part in path:
        if part.isdigit():  # the place in a list of tables
            continue
        field = section.model_fields.get(part) if hasattr(section, "model_fields") else None
        annotation: Any = field.annotation if field else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        section = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
    return tuple(section.model_fields) if section is not None else ()
