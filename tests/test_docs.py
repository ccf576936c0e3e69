"""The documentation is true: studies parse, links lead somewhere, what is named exists, the worked examples work."""

import functools
import importlib
import importlib.util
import json
import pkgutil
import re
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import pytest
import typer.main

from tests.support import in_process, tiny_study
from wardround import __version__, algorithms, meters, queries
from wardround.cli.app import app
from wardround.cli.tables.check import check_command
from wardround.core.contracts import Message
from wardround.data.folder import data_folder
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.study_summary import describe
from wardround.engine import registry
from wardround.partners import choices, probes
from wardround.study.file import parse_study, read_study

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path for folder in ("*", "docs/**/*", "examples/*", "benchmarks/*") for path in ROOT.glob(f"{folder}.md")
)
NEWCOMERS = ROOT / "CONTRIBUTING.md"
EXAMPLES = sorted(ROOT.glob("examples/*.toml"))
REAL = {
    *("adult", "heart_disease", "mnist_writers", "shakespeare_roles", "imdb_films"),
    *("datashield_survival", "lung", "rotterdam_gbsg", "tcga_brca"),
}
"""Sources of the examples that need WARDROUND_DATA."""
ADDED = {"hosts"}
"""Modules that a page asks the reader to write, beside those with a mark of their own."""
NO_MODULES = {"wardround.components", "wardround.json"}
"""The group of entry points, and a file in a FLARE kit."""
LONG = ("adult_poster", "case_study", "case_study_heart", "mnist_writers")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_long(path: Path) -> bool:
    """Whether checking the example takes long: many cases, or the Adult census ten times over."""
    return path.stem in LONG or (path.stem.startswith("adult_") and path.stem != "adult_iid")


def loaded(path: Path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def studies(pages: list[Path]) -> list[tuple[str, str]]:
    """Every ```toml block of these pages, with where it stands."""
    found = []
    for page in pages:
        for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S), 1):
            found.append((f"{named(page)}, block {number}", block))
    return found


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def check_names(where: str, text: str) -> None:
    """The study parses, and every component and setting it names exists."""
    content = tomllib.loads(text)
    if "study" not in content:  # a piece of a study file: its tables must still be known ones
        content = {"study": {"name": "piece"}, "data": {"source": "triage"}, **content}
    if "monitor" in content:  # sites read their own tables, and nothing is trained
        assert parse_study(content, where=where).monitor is not None
        return
    content["data"].setdefault("source", "triage")
    study = parse_study(content, where=where)
    for kind in ("model", "algorithm", "aggregator") if study.analysis is None else ("analysis",):
        one = getattr(study, kind)
        component = registry.find(kind, one.name, where=where)
        registry.check_settings(component, one.settings, where)
    source = {**registry.components("source"), **registry.components("dataset")}[study.data.source]
    if study.data.settings:
        outcome = {"target": "none"} if study.analysis is not None and source.kind == "source" else {}
        registry.check_settings(source, {**outcome, **study.data.settings}, where)
    if study.data.partition:
        partition = registry.find("partition", study.data.partition.name)
        registry.check_settings(partition, study.data.partition.settings, where)
    for transform in study.transforms:
        registry.check_settings(registry.find("transform", transform.name), transform.settings, where)
    for method in study.compare.methods if study.compare else ():
        assert method == "global" or method in registry.components("algorithm")


@pytest.mark.parametrize(
    ("where", "text"),
    [pytest.param(w, t, id=w) for w, t in studies([page for page in PAGES if page != NEWCOMERS])],
)
def test_every_study_in_the_pages_parses_and_names_what_exists(where, text):
    check_names(where, text)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{named(page)} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{named(page)} links to {target}, and there is no such heading"


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * is_long(path), id=named(path)) for path in EXAMPLES]
)
def test_every_example_passes_the_check(path, capsys):
    study = read_study(path)
    if study.data.source in REAL and not data_folder().is_dir():
        pytest.skip("needs WARDROUND_DATA")
    assert study.study.name == path.stem
    check_command(study, as_json=True)
    assert '"sites"' in capsys.readouterr().out


def test_every_example_that_could_run_over_real_sites_says_what_for():
    """A hospital's policy names the purposes that it allows, and refuses a study without one."""
    assert [
        path.name for path in EXAMPLES if read_study(path).data.source == "csv" and not read_study(path).study.purpose
    ] == []


def test_there_is_an_adult_example_for_every_partition():
    named_in = {path.stem.removeprefix("adult_"): path for path in EXAMPLES if path.stem.startswith("adult_")}
    del named_in["poster"]  # several partitions in one file
    assert set(named_in) == set(registry.components("partition"))
    for name, path in named_in.items():
        assert read_study(path).data.partition.name == name


def test_every_example_and_every_page_is_listed():
    told = (ROOT / "examples/README.md").read_text()
    assert [path.name for path in EXAMPLES if path.name not in told] == []
    index = (ROOT / "docs/index.md").read_text() + (ROOT / "docs/decisions/README.md").read_text()
    for page in [*ROOT.glob("docs/*/*.md"), ROOT / "docs/glossary.md"]:
        if page.parent.name != "reference":
            assert page.name in index, f"{named(page)} is not in docs/index.md"


def test_every_module_path_and_name_in_the_pages_exists():
    """`wardround/x/y.py`, `y.py`, `wardround.x.y`, `from wardround.x import y`; not what a page adds itself."""
    rooms = (ROOT / room for room in ("wardround", "tests", "benchmarks", "docs", "examples"))
    tree = [f"/{named(path)}" for room in rooms for path in room.rglob("*.py")]
    missing = []
    for page in [page for page in PAGES if page.parent.name != "reference"]:
        text = page.read_text()
        added = {*re.findall(r"<!-- module: (\w+)\.py -->", text), *ADDED}
        paths = {
            path for path in re.findall(r"[\w/]+\.py\b", text) if Path(path).stem.removeprefix("test_") not in added
        }
        missing += [(named(page), path) for path in paths if not any(one.endswith(f"/{path}") for one in tree)]
        names = {name for name in re.findall(r"\bwardround(?:\.\w+)+", text) if name not in NO_MODULES}
        for module, imported in re.findall(r"from (wardround[\w.]*) import ([\w, ]+)", text):
            names |= {f"{module}.{name}" for name in imported.split(", ")}
        missing += [(named(page), name) for name in names if not added & set(name.split(".")) and not is_there(name)]
    assert missing == []


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_two_hospitals_need_at_most_ten_commands():
    """Counted from the tutorial: every command in its blocks is typed once, by one of three people."""
    text = (ROOT / "docs/tutorial/two-hospitals.md").read_text().replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    typed = [line.split() for line in blocks.splitlines() if line.strip() and not line.startswith("#")]
    assert all(words[0] == "wardround" for words in typed)
    assert len(typed) <= 10
    # Nothing is left out: what each of three parties must do is there, for both hospitals.
    for site in ("north", "south"):
        assert [words for words in typed if words[1:4] == ["site", "init", site]]
        assert [words for words in typed if words[1:4] == ["site", "join", f"{site}.pem"] and "--start" in words]
        assert [words for words in typed if words[1:3] == ["coordinator", "sign"] and f"{site}.csr" in words]
    assert len([words for words in typed if words[1:3] == ["site", "approve"]]) == 2
    for step in ("init", "sign", "run"):
        assert len([words for words in typed if words[1:3] == ["coordinator", step]]) == 1


def test_every_command_and_option_in_the_pages_exists():
    """Lines of shell blocks and commands in the text, against the command line itself."""
    unknown = []
    for page in [page for page in PAGES if page.parent.name != "reference"]:
        text = page.read_text()
        blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.M | re.S)
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        lines += [" ".join(one.split()) for one in re.findall(r"`(wardround [^`]+)`", prose)]
        for line in lines:
            for words in re.findall(r"(?:^|\s|/)wardround ([a-z].*)", line.split("#")[0]):
                unknown += [(named(page), line.strip(), word) for word in unknown_words(words.split())]
    assert unknown == []


@functools.cache
def whole_command():
    return typer.main.get_command(app)


def unknown_words(words: list[str]) -> list[str]:
    """Commands and options among these words of a command that the command line does not know."""
    command = whole_command()
    while hasattr(command, "commands") and words and re.fullmatch("[a-z][a-z-]*", words[0]):
        if words[0] not in command.commands:
            return words[:1]
        command, words = command.commands[words[0]], words[1:]
    known = {option for one in command.params for option in one.opts} | {"--help"}
    return [word for word in words if word.startswith("--") and word not in known]


def test_the_reference_is_up_to_date(tmp_path):
    maker = loaded(ROOT / "docs/make_reference.py", "make_reference")
    maker.write(tmp_path)
    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}
    there = {path.name: path.read_text() for path in (ROOT / "docs/reference").iterdir()}
    behind = sorted(name for name in fresh.keys() | there.keys() if fresh.get(name) != there.get(name))
    assert behind == [], "run `make docs`"
    for kind in registry.ROOMS:
        page = fresh[f"{maker.KINDS[kind][0]}.md"]
        assert [name for name in registry.components(kind) if f"\n## {name}\n" not in page] == []


def test_the_patients_of_the_tutorial_are_those_the_script_makes(tmp_path):
    loaded(ROOT / "examples/make_patients.py", "make_patients").write(tmp_path / "patients.csv")
    assert (tmp_path / "patients.csv").read_bytes() == (ROOT / "examples/patients.csv").read_bytes()


ROOMS = {"fed_exp": algorithms, "count_above": queries, "steepness": probes, "absences": meters, "asking": choices}
"""Where a newcomer would put the modules of CONTRIBUTING.md."""
ASKING = '''"""Asks one query and one probe, as CONTRIBUTING.md adds them."""

from wardround.core.contracts import Message
from wardround.core.components.recipes import Recipe
from wardround.partners.choice import SiteQuestions, Choice, Evidence, probe
from wardround.partners.probes.steepness import steepness
from wardround.queries.count_above import count_above

SETTINGS = {"columns": ("age",), "smallest_cell": 10, "threshold": 40.0}


def asking() -> Choice:
    """The steeper, the better."""

    def assess(question):
        old = question.engine.ask(count_above(**SETTINGS), Message({}))
        score = question.probe(steepness(question.model), question.params)["length"]
        return Evidence(score, 0 * score, 0.0, old)

    query = Recipe("query", "count_above", tuple(SETTINGS.items()))
    return Choice(assess, SiteQuestions((probe("steepness"),), queries=(query,)))
'''


@pytest.fixture
def contributed(tmp_path, monkeypatch):
    """The files of CONTRIBUTING.md, where a newcomer would put them, and a choice of partners that asks them."""
    text = NEWCOMERS.read_text()
    found = dict(re.findall(r"<!-- module: (\w+)\.py -->\n```python\n(.*?)^```", text, re.M | re.S))
    for name, code in {**found, "asking": ASKING}.items():
        folder = tmp_path / (name if name in ROOMS else "tests")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(code)
    for name, room in ROOMS.items():
        monkeypatch.setattr(room, "__path__", [*room.__path__, str(tmp_path / name)])
    registry.own_components.cache_clear()
    importlib.invalidate_caches()
    yield tmp_path / "tests"
    for name, room in ROOMS.items():
        sys.modules.pop(f"{room.__name__}.{name}", None)
        if hasattr(room, name):
            delattr(room, name)
    registry.own_components.cache_clear()


def test_the_worked_example_is_found_and_its_tests_pass(contributed, even, model):
    component = registry.find("algorithm", "fed_exp")
    assert component.label == "Common model (FedExP)"
    assert component.summary == "FedAvg whose server takes longer steps while the sites' updates disagree."
    for where, text in studies([NEWCOMERS]):
        check_names(where, text)
    written = loaded(contributed / "test_fed_exp.py", "test_fed_exp")
    written.test_one_site_is_fed_avg(even, model)
    written.test_step_by_hand(model)
    written.test_a_site_sends_its_weighted_square(even, model)


def test_the_query_and_the_probe_are_found_and_their_tests_pass(contributed, even, model):
    assert registry.find("query", "count_above").summary.startswith("How many patients of all sites")
    loaded(contributed / "test_count_above.py", "test_count_above").test_by_hand()
    written = loaded(contributed / "test_steepness.py", "test_steepness")
    written.test_it_is_the_length_of_the_slope(even, model)
    written.test_an_answer_is_as_large_as_its_terms_say(model)


def test_the_meter_is_found_its_test_passes_and_a_run_reports_it(contributed, tmp_path, capsys):
    loaded(contributed / "test_absences.py", "test_absences").test_by_hand()
    tiny_study.call(capsys, "run", tiny_study.write_study(tmp_path), "--out", tmp_path / "run")
    (method,) = json.loads((tmp_path / "run/result.json").read_text())["methods"]
    assert method["meters"]["absences"] == {"missed": 0, "words": "0 answers were missing."}


def test_a_site_shows_the_words_of_a_new_query_and_probe_and_keeps_to_their_limits(contributed, tmp_path):
    """Nothing but their own files tells the site what they are: it shows their words and counts their answers."""
    consortium = in_process.Consortium(tmp_path / "consortium")
    words = in_process.study_of("asked", 1, study={"user": "bo"}).model_dump(mode="json", exclude_none=True)
    study = parse_study(
        {**words, "study": {**words["study"], "name": "asked"}, "partners": {"name": "asking"}}, where=""
    )
    home = consortium.homes["kenema"]
    HomeAccess(home).store_offer(study_id(study), study.model_dump(mode="json"), "researcher")
    shown = describe(home, read_offer(home, study_id(study)))
    text = "\n".join(dict(shown.parts)["What leaves for the choice of partners"])
    assert "For the query count_above, once: how many of your training patients are above 40.0, rounded down" in text
    assert "multiples of 10 (at most 1 numbers" in text
    assert "For the probe steepness, once: how steep its patients' loss is" in text
    assert "2 numbers, about 8 bytes" in text
    assert {"query/count_above", "probe/steepness"} <= set(shown.facts["components"])
    consortium.conduct(study)
    chosen = json.loads((consortium.run(study) / "partners.json").read_text())
    assert chosen["details"]["above"][0] % 10 == 0

    def asked(nonce, **settings):
        said = {"columns": ["age"], "smallest_cell": 10, "threshold": 40.0, **settings}
        query = {"kind": "query", "name": "count_above", "settings": said, "parts": []}
        header = {"protocol": 1, "wardround": __version__, "study": study_id(study), "round": 0, "nonce": nonce}
        request = encode({**header, "query": query, "on": "training"}, Message({}))
        return decode(consortium.handlers["kenema"].answer("query", "server", request))[0]

    # The query's terms say once, and that was for the choice: no other threshold is answered, nor the same again.
    for again in (asked("ab", threshold=41.0), asked("cd")):
        assert again["status"] == "refused"
        assert "count_above: the approved study has 1, and all were given" in again["why"]


def test_the_aggregator_of_the_how_to_is_between_mean_and_median(tmp_path):
    text = (ROOT / "docs/how-to/add-an-aggregator.md").read_text()
    (code,) = re.findall(r"<!-- module: half_median.py -->\n```python\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "half_median.py").write_text(code)
    make = loaded(tmp_path / "half_median.py", "half_median").half_median
    # Answers 1, 2 and 9 from sites with 2, 1 and 4 patients: mean 4, median 2 (one vote each); share 1/4 gives 3.5.
    weight = jnp.array([2.0, 1.0, 4.0])
    stack = Message({"update": {"w": jnp.array([[2.0], [2.0], [36.0]])}, "weight": weight})
    for share, expected in ((0.0, 4.0), (0.25, 3.5), (1.0, 2.0)):
        combined, _ = make(share=share).reduce((), stack)
        assert combined.arrays["update"]["w"].tolist() == pytest.approx([expected])
        assert combined.arrays["weight"] == 7


def test_every_defect_of_a_consortiums_life_names_a_test_that_exists():
    text = (ROOT / "docs/decisions/0041-study-life.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| found")]
    assert len(rows) >= 25
    for row in rows:
        content = ""
        for file, function in re.findall(r"`(?:([\w/]+\.py)(?:::)?)?(\w+)?`", row.split("|")[-2]):
            content = (ROOT / "tests" / file).read_text(encoding="utf-8") if file else content
            assert f"def {function}(" in content if function else "def test_" in content, (row, file, function)
        assert content, row


def test_every_promise_names_a_test_that_exists():
    text = (ROOT / "docs/explanation/promises.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row.split("|")[-2])
        assert named, row
        for file, function in named:
            content = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert f"def {function}(" in content if function else "def test_" in content, (file, function)
