"""A labeling function in one line: "worst -> negative", "lactate > 2 -> ill", or the JSON of a file of functions."""

import json
from collections.abc import Sequence

from wardround.core.errors import Refusal
from wardround.weak_supervision.function import LabelingFunction, function_from


def function_from_text(text: str, labels: Sequence[str], column: str = "", where: str = "") -> LabelingFunction:
    """With a `column` of free text what stands before the arrow is a word of it, else a condition on a table."""
    if text.lstrip().startswith("{"):
        try:
            said = json.loads(text)
        except ValueError as error:
            raise Refusal(
                f"the rule {text!r} is no JSON ({error})", where=where, remedy="copy it from a file"
            ) from None
        made = function_from(said, where)
        if made.label in labels:
            return made
    said_of, arrow, label = (part.strip() for part in text.rpartition("->"))
    if not arrow or not said_of or label not in labels:
        raise Refusal(
            f"{text!r} is no rule with a label of the study",
            where=where,
            remedy=f'write "terrible -> {labels[0]}", or a condition in the place of the word',
        )
    if column:
        return function_from({"name": "unigram", "column": column, "word": said_of, "label": label}, where)
    return function_from({"name": "threshold", "condition": said_of, "label": label}, where)
