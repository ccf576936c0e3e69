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
from wardround.cli.app import app
from wardround.core.components import settings
from wardround.data.folder import VARIABLE
from wardround.deploy.home import HOME, CoordinatorSettings, SiteSettings
from wardround.deploy.roles import RolesFile
from wardround.deploy.second.home import SecondSettings
from wardround.deploy.site.datasets import DatasetEntry
from wardround.deploy.site.policy import Policy
from wardround.deploy.trust.certificates import PASSPHRASE
from wardround.engine import registry
from wardround.evaluate.metrics import BY_KIND
from wardround.runs import cases_result, partners_result, result, scores, sites
from wardround.runs.clinical import figures, patient_table
from wardround.runs.explain import explain_result, gaps_result
from wardround.runs.file_names import MANIFEST, RESULT, ROUNDS
from wardround.runs.schema import schema_of_result
from wardround.study import file as study_file

HEAD = "<!-- Written by docs/make_reference.py from the code; change the code, then run `make docs`. -->\n\n"

KINDS: Mapping[str, tuple[str, str, str]] = {
    # kind: (file, title, how a study file names it)
    "algorithm": ("algorithms", "Algorithms", "How sites learn together. Named in `[algorithm]` and in `[compare]`."),
    "aggregator": ("aggregators", "Aggregators", "How the sites' answers become one. Named in `[aggregator]`."),
    "model": ("models", "Models", "What is trained. Named in `[model]`; `from_flax` and `from_torch` are for Python."),
    "transform": ("transforms", "Transforms", "What happens to a message on its way. Named in `[[transforms]]`."),
    "meter": ("meters", "Meters", "What is added up over the rounds. All of them run in every study."),
    "source": ("sources", "Sources", "Where your own rows come from. Named in `[data]`; `frame` is for Python."),
    "dataset": ("datasets", "Data sets", "Named data sets. Named in `[data]` as `source`."),
    "partition": ("partitions", "Partitions", "How one pool becomes several sites. Named in `[data.partition]`."),
    "choice": ("choices", "Choices of partners", "How partners are judged. Named in `[partners]` and in `[compare]`."),
    "probe": ("probes", "Probes", "What choices of partners ask of the sites. No study names them."),
    "query": (
        "queries",
        "Queries",
        "Questions to the sites that are no training: for the preparation, and for choices of partners. No study names "
        "them.",
    ),
    "analysis": (
        "analyses",
        "Analyses",
        "Methods that learn from sums over patients in a few exchanges: regressions, survival, trees. Named in "
        "`[analysis]`.",
    ),
    "labeling_function": (
        "labeling_functions",
        "Labeling functions",
        "Rules that vote for a class, or abstain. Named in `[[data.cleaning.rules]]` and in files of functions.",
    ),
}

MEANINGS: Mapping[str, str] = {
    "study.name": "The study's name, and that of its run folder.",
    "study.seed": "Decides every random draw: splits, partition, first model, order of rows, cohorts.",
    "study.rounds": "Rounds to train.",
    "study.user": "The asking site, for methods and choices of partners that train for one site.",
    "data.source": "A source (`csv`, `parquet`) or a named data set.",
    "data.shares": "Shares of train, validation and test rows at every site.",
    "data.split_by": "The column that names the patient: all its rows then go to the same part. Not under `[privacy]`.",
    "data.missing_columns": 'A column that some sites lack: refused, or with "fill" unknown there.',
    "data.missing_target": 'Rows whose target is unknown: refused, or with "drop" left out; '
    "with [privacy] neither, since both would tell of them: they count as blank rows.",
    "data.cleaning.texts.features": "Numbers that a text becomes, where no words are listed.",
    "data.empty_sites": 'Sites with fewer than two rows: refused, or with "keep" taken as they are.',
    "data.preparation.impute": "What fills a gap: `mean`, `median` or `most_frequent` of all sites' training rows.",
    "data.preparation.scale": "How numbers are scaled: `standard`, `minmax` or `none`.",
    "data.preparation.indicators": "Whether a column with gaps gets a second one that says where they are.",
    "participation.fraction": "Share of the sites drawn anew each round.",
    "participation.cohort": "Number of sites drawn anew each round.",
    "participation.present": 'Rounds in which a site is there, such as `va = "1-10, 20-"`; others always are.',
    "stopping.patience": "Evaluations without a lower loss after which training stops; the best model is kept.",
    "stopping.smallest": "How much lower the loss must be to count.",
    "budget.grams_co2": "Grams of CO2, of that energy.",
    "evaluation.every": "Rounds from one look at the validation rows to the next.",
    "evaluation.resamples": "Bootstrap resamples for intervals; 0 for none.",
    "evaluation.keep_predictions": "Write `predictions.csv`: a line for each test patient. Not over real sites.",
    "compare.methods": 'Algorithms to compare; "global" is the study\'s own.',
    "compare.repeats": "Splits, each with its own seed, on which every method is run.",
    "compare.cases.name": "The case's name, and that of its folder.",
    "compare.cases.title": "What the table and the page call it.",
    "compare.cases.study": "Keys of [study] that differ.",
    "compare.cases.model": "Another [model].",
    "compare.cases.privacy": "Keys of [privacy] that differ.",
    "partners.name": "How partners are judged: one of the [choices](choices.md).",
    "privacy.level": "Whom the guarantee is for: each patient (`sample`) or each site as a whole (`site`).",
    "privacy.delta": "The chance with which epsilon may not hold; below one over the number of patients (or sites).",
    "tune.parameters": 'Each key with `[low, high]`, `[low, high, "log"]` or a list of choices; `"model.l2"` names'
    " a key of another table.",
    "tune.trials": "Settings to try.",
    "tune.folds": "Folds of the cross-validation.",
}

SETTINGS_FILES: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("coordinator.toml", "In a coordinator's home.", CoordinatorSettings),
    ("site.toml", "In a site's home.", SiteSettings),
    ("second.toml", "In a second server's home.", SecondSettings),
    ("policy.toml", "In a site's home: what studies may do. The file itself explains each key.", Policy),
    ("data.toml", "In a site's home: one table for each dataset; `wardround site data add` writes it.", DatasetEntry),
    (
        "roles.toml",
        "In any home, if you write one: names of users of the operating system. Without the file anybody who may write "
        "to the home may do everything. With it, the user of the process acts, and `--by` can name nobody else. It is "
        "as strong as the permissions of the home.",
        RolesFile,
    ),
)
SETTING_MEANINGS: Mapping[str, str] = {
    "coordinator.toml.consortium": "The consortium's name.",
    "coordinator.toml.name": "The coordinator's name, which sites check in its certificate.",
    "coordinator.toml.listen": "Where it listens.",
    "site.toml.name": "The site's name, as in its certificate.",
    "second.toml.name": "The second server's name, as in its certificate.",
    "policy.toml.purposes": "Purposes that studies may have.",
    "policy.toml.components": "Components that may run, by KIND/NAME; `KIND/*` is all of a kind.",
    "policy.toml.components_denied": "Components that may not, even where a star would allow them.",
    "policy.toml.packages_denied": "Packages whose components may not run.",
    "policy.toml.columns": "Columns that studies may read; patterns such as `lab_*` work.",
    "policy.toml.columns_denied": "Columns that none may read.",
    "policy.toml.smallest_cell": "Nothing is told about fewer patients than this.",
    "data.toml.source": "One of the [sources](sources.md); further keys are its settings.",
}
VARIABLES: Mapping[str, str] = {
    HOME: "The home where no `--home` names one.",
    PASSPHRASE: "The passphrase of the authority's key, for scripts.",
    VARIABLE: "The folder with the named data sets.",
}

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

FOLDER = f"""
## The run folder

`run`, `compare`, `demo` and `tune` write into a folder of their own (`--out`, or `runs/NAME`).

| file | holds |
|---|---|
| `{MANIFEST}` | the study, its hash, the hash of the data, seed, versions, devices, command: what a rerun needs |
| `{ROUNDS}` | one line a round: who took part, rows, seconds, bytes, validation loss |
| `checkpoints/` | the state after the last finished round of every method and repeat; `--resume` goes on from it |
| `{RESULT}` | sites, every method's figures with intervals, comparisons, cost: [every key](result.md) |
| `model.safetensors` | the common model (`model-METHOD.safetensors` where several were compared) |
| `personal.safetensors` | the models that sites use themselves, where the method gives them (`personal-METHOD...`) |
| `predictions.csv` | with `[evaluation] keep_predictions`: what was predicted for every test patient |
| `model.adaptation-SITE.json` | `adapt` only: how the model's risks are mapped and patients flagged at a site |
| `monitor/`, `monitor-SITE/` | `monitor` only: its page, and what it remembers between calls |
| `report.html` | the report: one file that loads nothing from the network |
| `trials.jsonl` | `tune` only: every trial |

## Exit codes

0: done. 2: something the user can fix, explained in one paragraph (with `--json` also as `{{"error": ...}}`).
3: `monitor` raised an alarm. 130: interrupted.
"""


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
                raise SystemExit(f"docs/make_reference.py: say in MEANINGS what {path}.{key} means")
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
                raise SystemExit(f"docs/make_reference.py: say in SETTING_MEANINGS what {name}.{key} means")
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
