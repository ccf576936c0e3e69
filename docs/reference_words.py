"""Words that docs/make_reference.py puts beside what it finds in the code: kinds, keys, files, variables."""

from collections.abc import Mapping

from pydantic import BaseModel

from wardround.data.folder import VARIABLE
from wardround.deploy.home import HOME, CoordinatorSettings, SiteSettings
from wardround.deploy.roles import RolesFile
from wardround.deploy.second.home import SecondSettings
from wardround.deploy.site.datasets import DatasetEntry
from wardround.deploy.site.policy import Policy
from wardround.deploy.trust.certificates import PASSPHRASE
from wardround.runs.file_names import MANIFEST, RESULT, ROUNDS

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
    "policy.toml.words_denied": "Words of free text that no analysis hears of, such as names.",
    "policy.toml.smallest_cell": "Nothing is told about fewer patients than this.",
    "data.toml.source": "One of the [sources](sources.md); further keys are its settings.",
}
VARIABLES: Mapping[str, str] = {
    HOME: "The home where no `--home` names one.",
    PASSPHRASE: "The passphrase of the authority's key, for scripts.",
    VARIABLE: "The folder with the named data sets.",
}

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
