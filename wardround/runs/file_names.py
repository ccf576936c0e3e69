"""What the files of a run folder are called. Only this room names them."""

from urllib.parse import quote

MANIFEST = "manifest.json"
"""What a rerun needs: the study, hashes, seed, versions, command."""
ROUNDS = "rounds.jsonl"
"""One line a round."""
RESULT = "result.json"
"""Written when the run is finished."""
MODEL = "model.safetensors"
"""The common model of a run with one method, or the model of the site that asked."""
PERSONAL = "personal.safetensors"
"""The models that sites use themselves."""
PREDICTIONS = "predictions.csv"
"""What was predicted for single test patients, where a study says that it may be kept."""
SELECTION = "selection"
"""The folder of what `explain` chose: for each site its rules and the classifiers they name."""
EXPERT_ANSWERS = "expert.jsonl"
"""What an expert answered, in order."""
EXPERT_QUESTION = "question.json"
"""What waits for an expert's answer."""
FUNCTIONS = "functions.json"
"""Labeling functions that an expert accepted."""
MODEL_CARD = "model_card.json"
REPORT = "report.html"


def method_file(name: str, method: str) -> str:
    """The file of one of several methods.

    >>> method_file(MODEL, "fed_avg")
    'model-fed_avg.safetensors'
    """
    stem, _, suffix = name.partition(".")
    return f"{stem}-{method}.{suffix}"


def adaptation_file(model: str, site: str | None = None) -> str:
    """The file that adapts a model to a site, or to whoever names none; beside the model's own.

    >>> adaptation_file("model-fed_avg.safetensors"), adaptation_file(MODEL, "St. Mary/West")
    ('model-fed_avg.adaptation.json', 'model.adaptation-St.%20Mary%2FWest.json')
    """
    stem = model.removesuffix(".safetensors")
    return f"{stem}.adaptation.json" if site is None else f"{stem}.adaptation-{quote(site, safe='')}.json"
