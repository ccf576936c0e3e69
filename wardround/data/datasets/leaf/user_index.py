"""Where every user stands in files of LEAF's format: files are looked through once, and nobody's rows are decoded.

A pass of one regular expression over the mapped bytes finds strings, brackets and flat lists; brackets are counted, so
that the place of every user in `user_data` is known, in whatever order keys and users stand. What the index holds of a
user are its name, file, place, length, rows and part: some 50 bytes. Kept in a file, it is found again as long as the
files have the same names, sizes and times.
"""

import json
import mmap
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, overload

import numpy as np

from wardround.core.errors import Refusal
from wardround.core.files import write_whole

Numbers = np.ndarray[Any, Any]
Parts = Sequence[tuple[int | None, Path]]
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|\[(?:[^\[\]{}"]++|"(?:[^"\\]++|\\.)*+")*+\]|[\[\]{}]', re.DOTALL)
COLON = re.compile(rb"\s*:")
COLUMNS = ("first", "file", "begin", "end", "rows", "part")
UNSPLIT = -1
REMEDY = "make the file again with LEAF's scripts"


class PackedNames(Sequence[str]):
    """Names in one piece of memory, made into strings when asked for.

    >>> names = PackedNames.of(["f01", "é", ""])
    >>> names[1], list(names[1:]), len(names)
    ('é', ['é', ''], 3)
    """

    def __init__(self, letters: bytes, ends: Numbers) -> None:
        self.letters = letters
        self.ends = ends

    @classmethod
    def of(cls, names: Sequence[str]) -> "PackedNames":
        coded = [name.encode() for name in names]
        return cls(b"".join(coded), np.cumsum([0, *map(len, coded)]))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self.letters[self.ends[place] : self.ends[place + 1]].decode()


@dataclass(frozen=True)
class UserIndex:
    """Stretches of the files, those of a user one after the other, in the order in which users first appear."""

    files: tuple[Path, ...]
    names: PackedNames
    first: Numbers
    """Where a user's stretches begin; one more at the end."""
    file: Numbers
    begin: Numbers
    end: Numbers
    rows: Numbers
    part: Numbers
    """0 to train, 2 to test, -1 where that is still to be drawn."""


def index_of(parts: Parts, kept: str = "") -> UserIndex:
    """The index of these files; from the file `kept`, if it was made of the same ones."""
    mark = mark_of(parts)
    if kept and (found := load_index(Path(kept).expanduser(), parts, mark)) is not None:
        return found
    made = build_index(parts)
    if kept:
        save_index(Path(kept).expanduser(), made, mark)
    return made


def build_index(parts: Parts) -> UserIndex:
    numbers: dict[str, int] = {}
    user, columns = array("q"), [array("q") for _ in range(5)]  # file, begin, end, rows, part
    for number, (part, file) in enumerate(parts):
        names, rows, begins, ends = stretches_in(file)
        user.extend(numbers.setdefault(name, len(numbers)) for name in names)
        same = [number] * len(names), [UNSPLIT if part is None else part] * len(names)
        for column, own in zip(columns, (same[0], begins, ends, rows, same[1]), strict=True):
            column.extend(own)
    owner = np.frombuffer(user, np.int64)
    order = np.argsort(owner, kind="stable")
    sorted_columns = [np.frombuffer(column, np.int64)[order] for column in columns]
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(numbers)))])
    return UserIndex(tuple(file for _, file in parts), PackedNames.of(list(numbers)), first, *sorted_columns)


def stretches_in(file: Path) -> tuple[list[str], list[int], Sequence[int], Sequence[int]]:
    """Users of a file in their order, their rows, and where the data of each begin and end."""
    refusal = Refusal("the file is not whole JSON", where=str(file), remedy=REMEDY)
    if not file.stat().st_size:
        raise refusal
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            told, names, begins, ends = scan(content)
        except (ValueError, IndexError):
            raise refusal from None
    for key in ("users", "num_samples"):
        if not isinstance(told.get(key), list):
            raise Refusal(f"the file has no '{key}'", where=str(file), remedy=REMEDY)
    if names is None:
        raise Refusal("the file has no 'user_data'", where=str(file), remedy=REMEDY)
    users, rows = [str(one) for one in told["users"]], told["num_samples"]
    if len(rows) != len(users):
        told_rows = f"'num_samples' has {len(rows)} entries for {len(users)} users"
        raise Refusal(told_rows, where=str(file), remedy=REMEDY)
    if any(type(one) is not int or one < 0 for one in rows):
        raise Refusal("'num_samples' has an entry that is no number of rows", where=str(file), remedy=REMEDY)
    if names == users:
        return users, rows, begins, ends
    places = {name: place for place, name in enumerate(names)}
    missing = next((user for user in users if user not in places), None)
    if missing is not None:
        told_user = f"{file}, user {missing}"
        raise Refusal("the user is missing in 'user_data'", where=told_user, remedy=REMEDY)
    at = [places[user] for user in users]
    return users, rows, [begins[place] for place in at], [ends[place] for place in at]


def scan(content: mmap.mmap) -> tuple[dict[str, Any], list[str] | None, "array[int]", "array[int]"]:
    """The short lists at the top of a file, and the names, beginnings and ends of the objects in `user_data`."""
    told: dict[str, Any] = {}
    names: list[str] | None = None
    begins, ends = array("q"), array("q")
    depth, key, inside = 0, "", False
    for found in TOKEN.finditer(content):
        first = content[found.start()]
        if first == 0x7B or (first == 0x5B and found.end() == found.start() + 1):  # { or a list of lists
            depth += 1
            if depth == 2:
                inside = first == 0x7B and key == "user_data"
                names = [] if inside else names
            elif depth == 3 and inside:
                begins.append(found.start())
        elif first in (0x7D, 0x5D):  # } or ]
            depth -= 1
            if depth == 2 and inside:
                ends.append(found.end())
        elif first == 0x22 and depth == 1 and COLON.match(content, found.end()):
            key = json.loads(found.group())
        elif first == 0x22 and depth == 2 and inside and names is not None:
            names.append(str(json.loads(found.group())))
        elif first == 0x5B and depth == 1:
            told[key] = json.loads(found.group())
    if depth or not len(begins) == len(ends) == len(names or ()):
        raise ValueError
    return told, names, begins, ends


def mark_of(parts: Parts) -> str:
    """Changes with every file's name, size and time."""
    stats = [(part, str(file), file.stat().st_size, file.stat().st_mtime_ns) for part, file in parts]
    return json.dumps(stats)


def save_index(path: Path, index: UserIndex, mark: str) -> None:
    if not path.parent.is_dir():
        raise Refusal(
            f"there is no folder {path.parent}", where=f"[data] index = {str(path)!r}", remedy="make the folder first"
        )
    columns = {f"{name}_column": getattr(index, name) for name in COLUMNS}
    letters = np.frombuffer(index.names.letters, np.uint8)
    content = BytesIO()
    np.savez(content, mark=np.array(mark), letters=letters, ends=index.names.ends, **columns)
    write_whole(path, content.getvalue(), wait=False)


def load_index(path: Path, parts: Parts, mark: str) -> UserIndex | None:
    """None where there is none yet, or one of other files."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as found:
            if str(found["mark"]) != mark:
                return None
            columns = [found[f"{name}_column"] for name in COLUMNS]
            names = PackedNames(found["letters"].tobytes(), found["ends"])
    except (ValueError, OSError, KeyError, EOFError):
        return None
    return UserIndex(tuple(file for _, file in parts), names, *columns)
