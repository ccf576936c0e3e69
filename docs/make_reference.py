"""Writes docs/reference from the registry, the study file's own description, the command line and the docstrings.

Run it after adding or changing a component (`make docs`); tests/test_docs.py fails while the pages are behind the code.
"""

import ast
import importlib
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import wardround
from docs.reference_words import FOLDER, KINDS, MEANINGS, SETTING_MEANINGS, SETTINGS_FILES, VARIABLES
from wardround.cli.app import app
from wardround.core.components import settings
from wardround.engine import registry
from wardround.evaluate.metrics import BY_KIND
from wardround.runs import cases_result, partners_result, result, scores, sites
from wardround.runs.clinical import figures, patient_table
from wardround.runs.explain import explain_result, gaps_result
from wardround.runs.file_names import RESULT
from wardround.runs.schema import schema_of_result
from wardround.study import file as study_file

HEAD = "<!-- Written by docs/make_reference.py from the code; change the code, then run `make docs`. -->\n\n"

SCHEMA = "result.schema.json"
RESULT_MODULES = (
    result,
    sites,
    patient_table,
    scores,
    figures,
    cases_result,
    partners_result,
    explain_result,
    gaps_result,
)
"""Where the parts of a result are described."""


def pages() -> dict[str, str]:
    """Every page of the reference by its file name."""
    made = {f"{KINDS[kind][0]}.md": component_page(kind) for kind in registry.ROOMS}
    made |= {"study-file.md": study_page(), "commands.md": command_page(), "metrics.md": metric_page()}
    made |= {"settings.md": settings_page(), "result.md": result_page(), "python.md": python_page()}
    return {"index.md": index_page(made), **made, SCHEMA: json.dumps(result_schema(), indent=1) + "\n"}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def index_page(made: Mapping[str, str]) -> str:
    lines = [HEAD + "# Reference\n", "Written from the code. `wardround list` prints the same on the terminal.\n"]
    for name, text in made.items():
        title = next(line for line in text.splitlines() if line.startswith("# "))
        lines.append(f"- [{title[2:]}]({name})")
    return "\n".join(lines) + "\n"


def result_schema() -> dict[str, Any]:
    """The schema of a result, with the words that stand below its fields in the source."""
    found = schema_of_result()
    for module in RESULT_MODULES:
        for (name, field), words in attribute_words(module).items():
            if name in found["$defs"]:
                key = getattr(module, name).model_fields[field].alias or field
                found["$defs"][name]["properties"][key]["description"] = words
    return found


def result_page() -> str:
    """Every part of a result with its keys, in the order in which they refer to each other."""
    found = result_schema()
    kinds = [kind["$ref"].rpartition("/")[2] for kind in found["anyOf"]]
    parts = [
        f"{HEAD}# The result\n\n`{RESULT}` of a run folder, format {result.FORMAT}; "
        f"[{SCHEMA}]({SCHEMA}) is the same for a program (JSON Schema, draft 2020-12). `kind` tells which of the "
        f"{len(kinds)} forms a result has. A number that is not known is null, never made up. The format number rises "
        "when a key goes or changes its meaning; a new key alone does not raise it, so readers must pass over keys "
        "that they do not know.\n"
    ]
    listed = list(kinds)
    for name in listed:
        part = found["$defs"][name]
        further = part.get("additionalProperties")
        lines = ["| key | value | there | meaning |", "|---|---|---|---|"]
        for key, entry in part["properties"].items():
            there = "always" if key in part.get("required", ()) else "sometimes"
            lines.append(f"| `{key}` | {value_words(entry, listed)} | {there} | {entry.get('description', '')} |")
        if isinstance(further, dict):
            lines.append(f"| any other | {value_words(further, listed)} | sometimes | by its name |")
        parts.append(f"## {name}\n\n{part.get('description', '')}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def value_words(entry: Mapping[str, Any], listed: list[str]) -> str:
    """What a value of the schema is, in words; parts that it refers to are listed for later."""
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        listed += [name] if name not in listed else []
        return f"[{name}](#{name.lower()})"
    if "const" in entry or "enum" in entry:
        return " or ".join(f"`{json.dumps(one)}`" for one in entry.get("enum", [entry.get("const")]))
    if "anyOf" in entry:
        return " or ".join(value_words(one, listed) for one in entry["anyOf"])
    kind = entry.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    inner = entry.get("items") if kind == "array" else entry.get("additionalProperties")
    if kind not in ("array", "object") or not isinstance(inner, dict):
        return str(kind)
    return f"{'list' if kind == 'array' else 'table by name'} of {value_words(inner, listed)}"


def python_page() -> str:
    """What `wardround` exports, with signatures and docstrings."""
    lines = [
        HEAD + "# Python\n",
        "What `import wardround` gives, and what is kept stable. Every component is there by its name, too, such as",
        "`wardround.fed_avg(learning_rate=0.1)`. See [use wardround from Python](../how-to/use-from-python.md).\n",
    ]
    for name in wardround.__all__:
        one = getattr(wardround, name)
        words = (inspect.getdoc(one) or "").partition("\n>>>")[0].strip()
        head = "" if name == "Study" else f"```python\n{name}{signature_of(one)}\n```\n\n"
        lines += [f"## {name}\n", f"{head}{words}\n"]
        if name == "FinishedRun":
            lines += [f"- `{key}`: {words}" for key, words in members_of(one)] + [""]
    return "\n".join(lines)


def signature_of(one: Any) -> str:
    """Names and defaults, quoted as the formatter has it; types stand in the code."""
    found = inspect.signature(one)
    bare = [
        p.replace(annotation=p.empty, default=Ellipsis if inspect.isfunction(p.default) else p.default)
        for p in found.parameters.values()
        if p.name != "self"
    ]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty)) if bare else "()"
    return text.replace("Ellipsis", "...").replace("'", '"')


def members_of(one: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties of a class, each with the first line of its docstring."""
    for name, member in vars(one).items():
        if not name.startswith("_") and (inspect.getdoc(member) or "").strip() and name != "study":
            words = (inspect.getdoc(member) or "").splitlines()[0]
            yield (name if not inspect.isfunction(member) else f"{name}{signature_of(member)}"), words


def component_page(kind: str) -> str:
    _, title, words = KINDS[kind]
    parts = [f"{HEAD}# {title}\n\n{words}\n"]
    found = registry.components(kind)
    parts.append("\n".join(f"- [{name}](#{name}): {one.summary}" for name, one in found.items()) + "\n")
    for name, one in found.items():
        module = inspect.getmodule(one.factory)
        said = inspect.cleandoc(module.__doc__ or "") if module else ""
        parts.append(f"## {name}\n\n{one.summary}\n\n```text\n{said}\n```\n\n{settings_table(one)}")
    return "\n".join(parts)


def settings_table(one: registry.Component) -> str:
    if not one.parameters:
        return "No settings.\n"
    lines = ["| setting | value | default |", "|---|---|---|"]
    for p in one.parameters:
        lines.append(f"| `{p.name}` | {in_words(p.annotation)} | {'required' if p.required else shown(p.default)} |")
    return "\n".join(lines) + "\n"


def in_words(annotation: Any) -> str:
    """A type in words; what the registry's words leave out (tables, paths, lists of anything) is filled in."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        options = [in_words(option) for option in get_args(annotation) if option is not type(None)]
        return " or ".join(dict.fromkeys(options))
    if annotation is Path:
        return "a text"
    if origin is Literal:
        return "one of " + ", ".join(f"`{json.dumps(option)}`" for option in get_args(annotation))
    if origin is dict:
        return "a table"
    if origin is list and get_args(annotation) == (Any,):
        return "a list"
    return settings.type_text(annotation)


def shown(value: Any) -> str:
    """A default as a study file would write it."""
    if value is None:
        return "none"
    plain = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
    return f"`{json.dumps(plain, ensure_ascii=False)}`"


def study_page() -> str:
    parts = [
        f"{HEAD}# The study file\n\nA study is one TOML file. Unknown keys are refused, with the nearest known key. "
        "A relative `path` in `[data]` is taken from the file's folder.\n"
    ]
    documented = {key: words for module in study_modules() for key, words in attribute_words(module).items()}
    for path, section in sections(study_file.Study, ""):
        title = f"[[{path}]]" if path == "transforms" else f"[{path}]"
        parts.append(f"## `{title}`\n\n{inspect.getdoc(section)}\n")
        if section is study_file.Named:
            kind = next(k for k in KINDS if path.endswith(k) or path.removesuffix("s").endswith(k))
            page = KINDS[kind][0]
            default = study_file.Study.model_fields[path].default if path in study_file.Study.model_fields else None
            known = f" The default is `{default.name}`." if isinstance(default, study_file.Named) else ""
            parts.append(f"`name` is one of the [{KINDS[kind][1].lower()}]({page}.md).{known}\n")
            continue
        lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
        for key, field in section.model_fields.items():
            if table_of(field.annotation) is not None:
                continue
            said = documented.get((section.__name__, key)) or MEANINGS.get(f"{path}.{key}")
            if said is None:
                raise SystemExit(f"docs/reference_words.py: say in MEANINGS what {path}.{key} means")
            default = "required" if field.is_required() else shown(default_of(field))
            lines.append(f"| `{key}` | {in_words(field.annotation)}{limits(field)} | {default} | {said} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def settings_page() -> str:
    """The files of a home that people write, and the variables of the environment."""
    parts = [
        f"{HEAD}# Settings of a party\n\nFiles of a home that people edit, in TOML. Unknown keys are refused, with the "
        "nearest known key. `init` writes them; `wardround site policy set KEY VALUE` changes one key of the policy.\n"
    ]
    for name, whose, sort in SETTINGS_FILES:
        documented: dict[tuple[str, str], str] = {}
        for one in reversed(sort.__mro__):
            if one.__module__.startswith("wardround."):
                documented |= attribute_words(importlib.import_module(one.__module__))
        owners = [one.__name__ for one in sort.__mro__]
        lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
        for key, field in sort.model_fields.items():
            said = next((documented[owner, key] for owner in owners if (owner, key) in documented), None)
            said = said or SETTING_MEANINGS.get(f"{name}.{key}")
            if said is None:
                raise SystemExit(f"docs/reference_words.py: say in SETTING_MEANINGS what {name}.{key} means")
            default = "required" if field.is_required() else shown(default_of(field))
            lines.append(f"| `{key}` | {setting_words(field.annotation)}{limits(field)} | {default} | {said} |")
        parts.append(f"## {name}\n\n{whose}\n\n" + "\n".join(lines) + "\n")
    lines = ["| variable | meaning |", "|---|---|", *(f"| `{name}` | {said} |" for name, said in VARIABLES.items())]
    parts.append("## The environment\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def setting_words(annotation: Any) -> str:
    """Dates and lists of checked texts are none of the study file's types."""
    named = {"date": "a date such as 2027-12-31"}
    for option in (annotation, *get_args(annotation)):
        if getattr(option, "__name__", "") in named:
            return named[option.__name__]
    return "a list of texts" if get_origin(annotation) is list else in_words(annotation)


def study_modules() -> list[types.ModuleType]:
    """Those that hold the tables of the study file."""
    tables = {section.__module__ for _, section in sections(study_file.Study, "")}
    return [importlib.import_module(name) for name in sorted(tables)]


def sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every table of the study file with its path, outer before inner."""
    for key, field in model.model_fields.items():
        inner = table_of(field.annotation)
        if inner is None:
            continue
        here = f"{path}.{key}" if path else key
        yield here, inner
        yield from sections(inner, here)


def table_of(annotation: Any) -> type[BaseModel] | None:
    options = [annotation, *get_args(annotation)]
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def default_of(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def limits(field: FieldInfo) -> str:
    """What pydantic checks beyond the type."""
    words = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
    found = [
        f"{words[name]} {value}"
        for name in words
        for one in field.metadata
        if (value := getattr(one, name, None)) is not None
    ]
    return (", " if found else "") + " and ".join(found)


def attribute_words(module: types.ModuleType) -> dict[tuple[str, str], str]:
    """The text below a field in the source, by class and field."""
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for before, after in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[node.name, before.target.id] = " ".join(str(after.value.value).split())
    return found


def command_page() -> str:
    parts = [f"{HEAD}# Commands\n\n`wardround COMMAND --help` prints the same.\n"]
    group: Any = typer.main.get_command(app)
    for name, command in leaves(group, ""):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(str(p.metavar or p.name.upper()) for p in arguments)
        parts.append(f"## {name}\n\n    wardround {f'{name} {usage}'.strip()}\n\n{command.help}\n")
        lines = ["| | |", "|---|---|"]
        for p in command.params:
            word = ", ".join(p.opts) if p.param_type_name == "option" else str(p.metavar or p.name.upper())
            lines.append(f"| `{word}` | {p.help} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) + FOLDER


def leaves(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, those of groups such as `audit` too."""
    for name, command in group.commands.items():
        whole = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield whole, command
            yield from leaves(command, whole)
        else:
            yield whole, command


def metric_page() -> str:
    parts = [
        f"{HEAD}# Metrics\n\nNamed in `[study]` as `metric`. "
        "How they are computed: [figures](../explanation/figures.md).\n"
    ]
    for title, known in ((kind.capitalize(), found) for kind, found in BY_KIND.items()):
        lines = [f"## {title}\n", "| metric | what it is | better |", "|---|---|---|"]
        for name, metric in known.items():
            lines.append(f"| `{name}` | {metric.words} | {'higher' if metric.higher_is_better else 'lower'} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("reference"))
