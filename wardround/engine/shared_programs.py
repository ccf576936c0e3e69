"""Algorithms that differ in one number only share their compiled programs: it is an argument there, not a constant.

A study that is run at many privacy levels, or on many splits, has another noise each time; compiling a round takes
seconds, and training it may take less. Functions cannot tell how they were made, so it is written down here. An
algorithm that was forgotten, or never written down, is compiled by itself: slower, and the same.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Algorithm

REMEMBERED = 1024
"""Algorithms kept; the oldest go first."""


class Dial(NamedTuple):
    make: Callable[[Any], Algorithm]
    """From the number to the algorithm; may be given a traced number."""
    first: Algorithm
    """The first that was made so: it stands for all where the number does not matter."""
    number: float


_dials: "OrderedDict[Algorithm, Dial]" = OrderedDict()
_firsts: "OrderedDict[Callable[[Any], Algorithm], Dial]" = OrderedDict()


def with_number(make: Callable[[Any], Algorithm], number: float) -> Algorithm:
    """`make(number)`, written down as one of those that `make` gives; everything but its client must be the same."""
    made = make(number)
    first = _firsts.setdefault(make, Dial(make, made, number))
    # The first is written down anew each time, so that it is forgotten no sooner than those it stands for.
    for own, dial in ((first.first, first), (made, Dial(make, first.first, number))):
        _dials[own] = dial
        _dials.move_to_end(own)
    _firsts.move_to_end(make)
    for kept in (_dials, _firsts):
        while len(kept) > REMEMBERED:
            kept.popitem(last=False)
    return made


def representative(algorithm: Algorithm) -> Algorithm:
    """The one that stands for all that differ from it in the number only."""
    dial = _dials.get(algorithm)
    return dial.first if dial is not None and dial.first in _dials else algorithm


def number_of(algorithm: Algorithm) -> Any:
    """What a program compiled for `representative(algorithm)` must be given to be this one; nothing for most."""
    dial = _dials.get(algorithm)
    return np.float32(dial.number) if dial is not None and dial.first in _dials else ()


def algorithm_at(first: Algorithm, number: Any) -> Algorithm:
    """The algorithm at this number, inside a program."""
    return first if isinstance(number, tuple) else _dials[first].make(number)
