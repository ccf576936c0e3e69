"""A site's worker for one study: put together from what was approved, or recalled after a new start."""

from collections.abc import Callable
from functools import partial
from typing import Any

from wardround.core.contracts import Message
from wardround.data.table import Table
from wardround.deploy.site.analyses.worker import AnalysisWorker
from wardround.deploy.site.release.privacy_guard import Promise
from wardround.deploy.site.release.secure_round import SecureSite
from wardround.deploy.site.release.two_server_round import HalvesSite
from wardround.deploy.site.site_access import SiteAccess
from wardround.deploy.site.study_worker import StudyWorker
from wardround.study.file import Study


def start_worker(
    access: SiteAccess,
    study: str,
    words: Study,
    table: Table,
    take_transcript: Callable[[str, Message], dict[str, Any]],
) -> StudyWorker | AnalysisWorker:
    """Of an analysis, or of training, for the approved study `words`, known as `study`."""
    folder = access.folder(study)
    sums = SecureSite(
        access.name,
        folder,
        access.signing_keys,
        partial(access.roster_keys, study),
    )
    if words.analysis is not None:
        return AnalysisWorker.start(
            site=access.name,
            study=words,
            table=table,
            folder=folder,
            allow=partial(access.allow, study),
            smallest_cell=access.smallest_cell(study),
            sums=sums,
            budget=access.budget,
            words_denied=partial(access.words_denied, study),
        )
    worker = StudyWorker(
        site=access.name,
        study=words,
        table=table,
        folder=folder,
        allow=partial(access.allow, study),
        smallest_cell=access.smallest_cell(study),
        sums=sums,
        halves_site=HalvesSite(
            access.name,
            words,
            folder,
            lambda: access.signing_keys()[0],
            partial(access.second_key, study),
        ),
        promise=None if words.privacy is None else Promise(access.name, study, words, access.budget),
        take_transcript=take_transcript,
    )
    worker.recall()
    return worker
