"""The study's own [model] as each site's classifier: trained at every site alone, with the study's [privacy]."""

from collections.abc import Sequence

import jax
import numpy as np

from wardround.export.onnx_model import onnx_bytes
from wardround.predict.predictor import Predictor
from wardround.study.assemble import load_setting
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method
from wardround.study.model_facts import model_facts
from wardround.workflows.run import train
from wardround.workflows.training_plan import check_methods

KEPT = ("learning_rate", "local_epochs", "batch_size")
"""Settings of [algorithm] that training alone has as well."""


def study_classifiers(study: Study, seed: int, sites: Sequence[str]) -> dict[str, bytes]:
    """The files of the models that these sites train alone."""
    content = study.model_dump(mode="json", exclude_none=True)
    content["algorithm"] = {"name": "local", **{key: v for key, v in study.algorithm.settings.items() if key in KEPT}}
    content["study"]["seed"] = seed
    for name in ("compare", "tune", "partners", "explain", "gaps"):
        content.pop(name, None)
    alone = parse_study(content, where="[explain]")
    setting = load_setting(alone, seed)
    method = own_method(alone)
    ((plan,),) = check_methods(alone, setting, [method])
    trained = train(plan, None)
    facts = model_facts(
        plan.study,
        method,
        plan.algorithm,
        setting.federation.task,
        positive=setting.positive,
        preparation=setting.preparation,
        rounds=alone.study.rounds,
    )
    personal = jax.device_get(trained.personal if trained.personal is not None else trained.params)
    made = {}
    for place, name in enumerate(trained.sites):
        if name in sites:
            own = jax.tree.map(lambda array, at=place: np.asarray(array)[at], personal)
            made[name] = onnx_bytes(Predictor(facts, own, plan.algorithm, site=name))
    return made
