"""What a site works out once from its own table and needs in every exchange; lost, it is worked out again."""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Made = TypeVar("Made")
MOST = 4096


class SiteCache:
    """By the table itself: another table, or a copy, is another site's."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Hashable], tuple[weakref.ref[Any], Any]] = OrderedDict()

    def find(self, table: Any, key: Hashable, make: Callable[[], Made]) -> Made:
        place = (id(table), key)
        kept = self._kept.get(place)
        if kept is not None and kept[0]() is table:
            self._kept.move_to_end(place)
            found: Made = kept[1]
            return found
        made = make()
        self._kept[place] = (weakref.ref(table), made)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return made
