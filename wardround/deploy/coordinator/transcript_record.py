"""The coordinator's part in the transcript of a study: begins it, ends it, and keeps the sites' signatures under it.

What is written in every round is up to the engine; what an entry holds is in `trust/transcript.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Params
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.privacy_plan import noise_to_json
from wardround.deploy.coordinator.schema_agreement import SchemaAgreement, agreement_to_json
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.replies import Reply
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.trust.log_heads import parse_countersigned
from wardround.deploy.trust.transcript.entries import (
    MOST_KEPT,
    NAME,
    Closing,
    Opening,
    TaskWords,
    TranscriptSigner,
    digest_of,
    software,
    transcript_folder,
    words_digest,
)
from wardround.deploy.trust.transcript.handout import write_witnesses
from wardround.deploy.trust.transcript.writer import TranscriptWriter
from wardround.engine.fit import FitResult
from wardround.engine.split_round import answer_shapes, initial_progress, row_of
from wardround.study.file import Study


def signer_of(home: CoordinatorHome) -> TranscriptSigner:
    """The coordinator itself."""
    return TranscriptSigner(home.own_name, home.key, home.certificate_path.read_text())


def open_transcript(
    engine: Deployment,
    studies: tuple[Study, Study],
    run: Path,
    agreement: SchemaAgreement,
    algorithm: Algorithm,
    params: Params,
    *,
    resumed: bool,
) -> TranscriptWriter | None:
    """The transcript of the training that is about to begin or go on; `studies` are as approved, and with its noise.

    None for a run that was begun by a version that kept none: it cannot be replayed from the start.
    """
    folder = transcript_folder(run)
    if resumed and not (folder / NAME).exists():
        return None
    approved, noisy = studies
    progress = initial_progress(algorithm, engine.transform, params, len(engine.sites), row_of(agreement.task))
    shapes = answer_shapes(algorithm, progress.server, algorithm.init_client(params), row_of(agreement.task))
    size = sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if algorithm.tailoring is not None:  # parts of the model are added up in its own size, with who held what
        size = 2 * sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(params))
    words, task = agreement_to_json(agreement), agreement.task
    writer = TranscriptWriter(folder)
    writer.open(
        Opening(
            study=study_id(approved),
            words=json.dumps(approved.model_dump(mode="json")),
            sites=engine.sites,
            task=TaskWords(**task._asdict()),
            agreed_schema=words_digest(plain(words["schema"])),
            agreed_preparation=words_digest(words["preparation"]),
            noise=plain(noise_to_json(noisy)),
            method=plain(engine.method(algorithm).words()),
            model=digest_of(params),
            state=digest_of(progress),
            linear=algorithm.aggregator.linear,
            sums=keeps_sums(approved, size, linear=algorithm.aggregator.linear or engine.transform.products_only),
            software=software(),
        ),
        params,
    )
    return writer


def keeps_sums(study: Study, size: int, *, linear: bool) -> bool:
    """Whether the sums are kept: as the study says, or where they are small.

    What an aggregator that sees each answer takes is all of them: kept only where the study says so.
    """
    said = study.deploy.transcript
    return said == "sums" if said is not None else linear and study.study.rounds * size <= MOST_KEPT


def plain(words: Any) -> Any:
    """As it is read again from JSON: lists for tuples."""
    return json.loads(json.dumps(words))


def close_transcript(
    transcript: TranscriptWriter, signer: TranscriptSigner, algorithm: Algorithm, fitted: FitResult
) -> dict[str, Any]:
    """Write the end and sign it; gives what every site is sent with the model."""
    transcript.close(
        Closing(
            rounds=fitted.rounds,
            best_round=fitted.best_round,
            stopped_early=bool(fitted.stopped_early),
            state=digest_of(fitted.progress),
            model=digest_of(algorithm.params(fitted.progress.server)),
        ),
        signer,
    )
    message = transcript.message()
    return {"transcript": message} if message else {}


def keep_witnesses(transcript: TranscriptWriter, replies: Mapping[str, Reply], certificates: Mapping[str, str]) -> None:
    """The signatures of the sites that have checked the transcript; whether they are right, whoever reads it checks."""
    found = {}
    for site, reply in sorted(replies.items()):
        try:
            seen = parse_countersigned(reply.header.get("transcript"))
        except (ValueError, Refusal):
            continue
        if seen.by == site and site in certificates:
            found[site] = {"countersigned": seen.content(), "certificate": certificates[site]}
    write_witnesses(transcript.folder, found)
