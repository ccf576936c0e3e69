"""A study as a job of NVIDIA FLARE, and a party of a FLARE project made ready for it: JSON files only, no code.

For consortia that already operate FLARE. The job names two classes that are installed everywhere and holds the study;
where a site's rows are is told by a file in the site's own kit, never by a job. Only FLARE's file formats are needed
here, not FLARE.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.trust.certificates import check_name
from wardround.runs.json_files import read_json, write_json
from wardround.study.file import Study

CONTROLLER = "wardround.deploy.transport.flare_job.StudyController"
EXECUTOR = "wardround.deploy.transport.flare_job.StudyExecutor"
TASK = "wardround"
STUDY_FILE = "study.json"
HOME_FILE = "wardround.json"
"""In the folder `local` of a party's kit: where its home is."""
INTERVAL = 0.05
"""Seconds between two questions of a site for work: FLARE's sites ask, and wait two seconds unless told otherwise."""
GRACE = 20.0
"""Seconds after which FLARE takes a silent process for dead; a minute unless told otherwise."""


def export(study: Study, folder: Path, sites: Sequence[str] = ()) -> Path:
    """Write the job's folder for these sites, or for those that the study names; gives the folder."""
    named = sorted(sites_of(study, sites))
    if folder.exists():
        raise Refusal("the folder already exists", where=str(folder), remedy="choose a new one with --out")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for path, words in job_files(study, named).items():
        write_json(partial / path, words)
    partial.rename(folder)
    return folder


def job_files(study: Study, sites: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The job, file by file. The study is a file of its own: FLARE would take its tables for parts of the job."""
    return {
        "meta.json": {
            "name": study_id(study),
            "resource_spec": {},
            "deploy_map": {"app_server": ["server"], "app_site": list(sites)},
            # A job never takes in a site that comes later, so it begins when all are there.
            "min_clients": len(sites),
            "mandatory_clients": list(sites),
        },
        "app_server/config/config_fed_server.json": {
            "format_version": 2,
            "server": {"heart_beat_timeout": 60, "task_request_interval": INTERVAL},
            "dead_client_grace_period": GRACE,
            "task_data_filters": [],
            "task_result_filters": [],
            "components": [],
            "workflows": [{"id": "study", "path": CONTROLLER, "args": {}}],
        },
        f"app_server/config/{STUDY_FILE}": {"study": study.model_dump(mode="json"), "sites": list(sites)},
        "app_site/config/config_fed_client.json": {
            "format_version": 2,
            "default_task_fetch_interval": INTERVAL,
            "task_data_filters": [],
            "task_result_filters": [],
            "components": [],
            "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}],
        },
    }


def sites_of(study: Study, sites: Sequence[str]) -> list[str]:
    """Who takes part: as the study says, or as given here."""
    named = list(dict.fromkeys(study.deploy.sites or sites))
    if study.deploy.sites and sites and set(sites) != set(named):
        raise Refusal(
            f"the study is for {', '.join(named)}, not for {', '.join(sites)}",
            where="--site",
            remedy="remove --site, or change [deploy] sites",
        )
    if not named:
        raise Refusal(
            "no site takes part: a FLARE job must name its sites",
            where="[deploy] sites",
            remedy="name them there, or with --site, as FLARE calls them",
        )
    return [check_name(site, "site") for site in named]


# ---- a party's kit ----


def connect(kit: Path, home: Path, *, only: bool = False) -> dict[str, Any]:
    """Let jobs in a party's FLARE kit use our class and find the party's home; with `only`, no other class and no code.

    A site's error log is kept from the server, where FLARE would send it unless told not to: all that leaves a site is
    in its audit log. Else nothing that was allowed before is lost unless `only` is given. Gives what was written, and
    who may still ship code.
    """
    local = kit / "local"
    server = (kit / "startup" / "fed_server.json").exists()
    if not local.is_dir() or not (server or (kit / "startup" / "fed_client.json").exists()):
        raise Refusal(
            "this is not the startup kit of a FLARE server or site",
            where=str(kit),
            remedy="name the folder that holds `startup` and `local`",
        )
    _ = (CoordinatorHome(home) if server else SiteHome(home)).settings  # refuses where there is none
    resources = read_setting(local, "resources.json")
    allowed = [] if only else list(resources.get("class_allow_list", []))
    ours = CONTROLLER if server else EXECUTOR
    if not only and "class_allow_list" not in resources:
        raise Refusal(
            "no class_allow_list is set, and FLARE's own would be lost by setting one",
            where=str(local / "resources.json"),
            remedy="set it there, or allow nothing but wardround with --only",
        )
    resources["class_allow_list"] = [*allowed, *([] if ours in allowed else [ours])]
    if not server:
        resources["allow_log_streaming"] = False
    if only:
        resources["class_list_enforcement_mode"] = "enforce"
    write_json(local / "resources.json", resources)
    rights = read_setting(local, "authorization.json")
    if only:
        rights["permissions"] = {role: without_code(may) for role, may in rights["permissions"].items()}
        write_json(local / "authorization.json", rights)
    write_json(local / HOME_FILE, {"home": str(home.absolute())})
    code = [role for role, may in rights["permissions"].items() if has_code_right(may)]
    return {"kit": str(kit), "home": str(home.absolute()), "class": ours, "may_ship_code": code}


def read_setting(local: Path, name: str) -> dict[str, Any]:
    """A setting of the kit, or FLARE's default for it."""
    path = local / name
    return read_json(path if path.exists() else local / f"{name}.default", "provision the kit again")


RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands")


def without_code(may: Any) -> dict[str, Any]:
    """A role's rights without that of sending code along with a job ("byoc" in FLARE's words)."""
    rights = dict.fromkeys(RIGHTS, may) if isinstance(may, str) else dict(may)
    return {**rights, "byoc": "none"}


def has_code_right(may: Any) -> bool:
    return bool((may if isinstance(may, str) else may.get("byoc", "none")) != "none")


def read_job(config: Path) -> tuple[dict[str, Any], list[str]]:
    """Study and sites, as `export` wrote them into a job's configuration."""
    content = read_json(config / STUDY_FILE, "export the study again with `wardround flare export`")
    study, sites = content.get("study"), content.get("sites")
    if not isinstance(study, dict) or not isinstance(sites, list) or not all(isinstance(one, str) for one in sites):
        raise Refusal(
            f"{STUDY_FILE} does not hold a study and its sites",
            where=str(config),
            remedy="export the study again with `wardround flare export`",
        )
    return study, sites
