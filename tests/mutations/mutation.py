"""One place of the code made wrong on purpose."""

import sys
from typing import NamedTuple


class Mutation(NamedTuple):
    """One place made wrong: `old` stands exactly once in `file` (below the package) and becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files below tests/ (or FILE::TEST) of which at least one test must fail."""


def apply(mutation: Mutation, source: str) -> str:
    """The source with the mutation in it; the place must be there, once."""
    found = source.count(mutation.old)
    if found != 1:
        sys.exit(f"{mutation.name}: its old text stands {found} times in {mutation.file}, not once. Correct the table.")
    return source.replace(mutation.old, mutation.new)
