"""What a coordinator is told to do about studies: queue, resume, cancel and amend them.

Imports are inside the functions, so that help loads nothing heavy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wardround.cli.output import say
from wardround.cli.study_progress import note
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import CoordinatorHome
    from wardround.study.file import Study

CELLS = (
    "Sites are asked about groups of {cell} patients or more, and one with fewer training patients adds nothing. The"
    " simulation counts exactly unless the study says so: write smallest_cell = {cell} under [data.preparation] to get"
    " the same model from both."
)
PLACES = ("path", "url", "query", "embeddings", "record")
"""What a study says of places: of no use to a site, which knows where its own rows are, and none of its business."""


def study_for_sites(home: "CoordinatorHome", path: Path) -> "Study":
    """The study of a file as sites get it; what can be known to be wrong is refused."""
    from wardround.deploy.coordinator.queue import with_monitored, with_parties
    from wardround.study.file import read_study

    said = read_study(path)
    words = with_parties(with_monitored(for_sites(said), home), home)
    refuse_early(home, words, path)
    if words.data.preparation.smallest_cell != said.data.preparation.smallest_cell and words.monitor is None:
        note(CELLS.format(cell=words.data.preparation.smallest_cell))
    if not words.study.purpose:
        note("The study states no purpose ([study] purpose): sites whose policy names purposes will not allow it.")
    return words


def resume_study(home: "CoordinatorHome", word: str | None) -> str:
    """Queue a study again that has not finished; gives its identity."""
    from wardround.deploy.coordinator.queue import amended_study, enqueue, find_study, read_submission

    name = find_study(home, word, unfinished(home))
    study, submitter = read_submission(home.folder(name))
    return enqueue(home, study, submitter, amends=amended_study(home.folder(name)))


def unfinished(home: "CoordinatorHome") -> dict[str, str]:
    """Studies that have not finished and were not replaced, with their states."""
    from wardround.deploy.coordinator.status import studies

    every = {one["study"]: one["state"] for one in studies(home, home.status())}
    return {one: state for one, state in every.items() if state not in ("finished", "amended")}


def cancel_study(home: "CoordinatorHome", word: str, by: str, why: str, *, as_json: bool) -> None:
    from wardround.deploy.coordinator.consortium import is_running
    from wardround.deploy.coordinator.queue import find_study
    from wardround.deploy.coordinator.studies.amendment import cancel

    name = find_study(home, word, unfinished(home))
    cancel(home, name, by=by, why=why)
    told = "" if is_running(home) else " when the coordinator runs"
    lines = [f"{name} ends; its sites are told{told}. To take it up again: wardround coordinator resume {name}"]
    say({"study": name, "state": "cancelled", "by": by}, lines, as_json)


def amend_study(
    home: "CoordinatorHome", word: str, path: Path | None, without: Sequence[str], by: str, why: str
) -> str:
    """Queue a changed study in the place of another; gives the new one's identity."""
    from wardround.deploy.coordinator.queue import find_study, read_submission
    from wardround.deploy.coordinator.studies.amendment import amend, without_sites

    old = find_study(home, word, unfinished(home))
    study, submitter = read_submission(home.folder(old))
    new = study if path is None else study_for_sites(home, path)
    new = without_sites(new, without) if without else new
    name = amend(home, old, new, by or submitter, why=why)
    note(f"{name} takes the place of {old}: sites whom the change does not concern keep their approval.")
    return name


def for_sites(study: "Study") -> "Study":
    """The study as sites get it: without the places of the coordinator's own rows (an address might even tell a
    password), and telling of no smaller groups than sites usually allow, unless it says so itself."""
    from wardround.deploy.site.policy import SMALLEST_CELL
    from wardround.engine import registry
    from wardround.study.file import parse_study

    content = study.model_dump(mode="json")
    content["data"] = {key: value for key, value in content["data"].items() if key not in PLACES}
    if "smallest_cell" not in study.data.preparation.model_fields_set:
        content["data"]["preparation"]["smallest_cell"] = SMALLEST_CELL
    choice = study.partners and registry.find("choice", study.partners.name, where="[partners]")
    if choice and any(one.name == "smallest_cell" for one in choice.parameters):
        content["partners"].setdefault("smallest_cell", SMALLEST_CELL)
    return parse_study(content, where="the study for the sites")


def refuse_early(home: "CoordinatorHome", study: "Study", path: Path) -> None:
    """What can be known to be wrong before any site hears of the study."""
    from wardround.deploy.coordinator.monitor.question import refuse_monitor
    from wardround.deploy.coordinator.schema_agreement import table_without_rows
    from wardround.deploy.protocol.study_id import study_id
    from wardround.engine.registry import suggest_name
    from wardround.runs.json_files import read_json

    try:
        if study.monitor is not None:
            refuse_monitor(study.monitor)
        else:
            table_without_rows(study)
    except Refusal as refusal:
        raise Refusal(refusal.what, where=f"{path}, {refusal.where}", remedy=refusal.remedy) from None
    known = tuple(home.site_names())
    if not known:
        raise Refusal("the consortium has no sites", remedy="sign requests with `wardround coordinator sign`")
    for site in study.deploy.sites:
        if site not in known:
            raise Refusal(
                f"there is no site called '{site}'", where=f"{path}, [deploy] sites", remedy=suggest_name(site, known)
            )
    ended = home.folder(study_id(study)) / "state.json"
    if ended.exists() and read_json(ended, "").get("state") == "finished":
        raise Refusal(
            "this study has already finished",
            where=str(ended.parent / "run"),
            remedy="read its report, or change the study (another seed is enough)",
        )
