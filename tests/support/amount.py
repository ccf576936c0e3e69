"""How much is tested: what `make test` does, or all of it, as `make test-all` asks with WARDROUND_TESTS=all."""

import os

ALL = os.environ.get("WARDROUND_TESTS") == "all"
USUAL = 25


def examples(most: int) -> int:
    """How many examples Hypothesis tries: all of them, or as many as make a quick suite."""
    return most if ALL else min(most, USUAL)
