"""Which columns there are, and whether each holds numbers or words."""

from collections.abc import Sequence

from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.queries.values import typed_values

TERMS = Terms(
    "which columns there are and whether each holds numbers or words, no patient's value",
    lambda of: of.columns,
    rows="training",
)


@recorded("query", TERMS)
def kinds_of() -> Query:
    """Which columns there are, and whether each holds numbers or words: the form of the table, no patient's value."""

    def ask(_: Message, site: Site) -> Message:
        return Message({"kinds": pack({str(name): typed_values(site.table[name])[0] for name in site.table.columns})})

    def combine(answers: Sequence[Message]) -> Report:
        kinds: dict[str, str] = {}
        each = [unpack(answer.arrays["kinds"]) for answer in answers]
        for own in each:
            for name, kind in own.items():
                # In this order by chance of spelling: "empty" gives way to "number", and that to "text".
                kinds[name] = max(kind, kinds.get(name, "empty"))
        return {"kinds": kinds, "each": each}

    return Query(ask, combine)
