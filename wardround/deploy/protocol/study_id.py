"""The identity of a study, by which coordinator and sites know that they mean the same words."""

from wardround.runs.folder import digest
from wardround.study.file import Study


def study_id(study: Study) -> str:
    """Name and hash: what is approved is exactly these words."""
    return f"{study.study.name}-{digest(study.model_dump(mode='json'))[:12]}"
