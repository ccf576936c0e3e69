"""Files in LEAF's own format: FEMNIST, Shakespeare, Sent140, CelebA or Reddit, each user a client.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. Needs the JSON files of LEAF's own scripts: `path` is
one file, a folder of them, or a folder with the folders train and test. A file has `users`, `num_samples`, `user_data`
with `x` and `y` for each user, and may have `hierarchies` (the play of a role). Files are read one at a time and rows
lie in a mapped file where they take more than a gigabyte, so a population may be larger than the memory. Without train
and test, every user's rows are split 60 / 20 / 20 at random. `fewest` leaves users with fewer rows out (LEAF's k).

With `lazy` the files are looked through once for where every user stands (kept in the file `index`, where one is
named), and a user's rows are read when it is drawn: for populations of which most clients are never asked. The rows are
the same; what is wrong with a user is told when it is read, and there are no figures by hierarchy. Not for reddit.

femnist: images 28 x 28, 62 classes. shakespeare: 80 characters and the next one; a character that LEAF does not know
counts as a blank. sent140: tweets as the set of their words, each word at one of `words` places by a checksum, for
logistic regression. celeba: smiling or not, from the pictures in the folder `images`, as 84 x 84 (needs Pillow).
reddit: ten words and the last word that follows, of the `vocabulary` - 2 most frequent in training; rows whose word is
padding are left out, an unknown word is a class of its own.
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wardround.core.bounds import Count, CountOrAll
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.datasets.leaf.clients import ClientRows, federation_of
from wardround.data.datasets.leaf.drawn_rows import federation_by_index
from wardround.data.datasets.leaf.user_index import index_of

Numbers = np.ndarray[Any, Any]
LeafSet = Literal["femnist", "shakespeare", "sent140", "celeba", "reddit"]
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The characters that LEAF knows, in its order."""
PICTURE = 84
PADDING, UNKNOWN = "<PAD>", "<UNK>"
WORD = re.compile(r"[a-z0-9']+")
SHARES = (0.6, 0.2, 0.2)


class Encoding(NamedTuple):
    """How a set's entries become rows, and what is predicted."""

    x: Callable[[list[Any], "UserPlace"], Numbers]
    y: Callable[[list[Any], "UserPlace"], Numbers]
    task: Task


class UserPlace(NamedTuple):
    """Where something stands, for whoever has to mend it."""

    file: Path
    user: str

    def refusal(self, what: str) -> Refusal:
        return Refusal(what, where=f"{self.file}, user {self.user}", remedy="make the file again with LEAF's scripts")


def leaf_files(
    *,
    path: str,
    name: LeafSet,
    images: str = "",
    words: Count = 512,
    vocabulary: Count = 10_000,
    fewest: CountOrAll = 0,
    lazy: bool = False,
    index: str = "",
    seed: int = 0,
) -> Federation:
    """FEMNIST, Shakespeare, Sent140, CelebA or Reddit from files in LEAF's own format, each user a client."""
    parts = parts_in(Path(path).expanduser())
    made = ENCODINGS.get(name)
    if lazy:
        if made is None:
            raise Refusal(
                "the words of Reddit are counted in all files before the first row can be read",
                where="[data] lazy",
                remedy="remove lazy, or take another set",
            )
        return drawn_federation(parts, made(images if name == "celeba" else words), fewest, index, seed, path)
    encoding = reddit(parts, vocabulary) if made is None else made(images if name == "celeba" else words)
    return federation_of(
        read_clients(parts, encoding),
        encoding.task,
        shares=SHARES,
        fewest=fewest,
        seed=seed,
        hierarchy="hierarchy",
        where=path,
    )


def drawn_federation(
    parts: list[tuple[int | None, Path]], encoding: Encoding, fewest: int, index: str, seed: int, where: str
) -> Federation:
    """Of users that are read when they are drawn."""
    found = index_of(parts, index)

    def read(content: bytes, rows: int, file: Path, user: str) -> tuple[Numbers, Numbers]:
        place = UserPlace(file, user)
        try:
            own = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise place.refusal(f"what stands in 'user_data' is not whole JSON ({error})") from None
        check_user(own, rows, place)
        return encoded(own, encoding, place)

    return federation_by_index(found, read, encoding.task, shares=SHARES, fewest=fewest, seed=seed, where=where)


def parts_in(path: Path) -> list[tuple[int | None, Path]]:
    """The files, each with the part that its rows are for: 0 to train, 2 to test, none where that is to be drawn."""
    if path.is_file():
        return [(None, path)]
    folders = [(0, path / "train"), (2, path / "test")]
    if all(folder.is_dir() for _, folder in folders):
        found: list[tuple[int | None, Path]] = [
            (part, file) for part, folder in folders for file in sorted(folder.glob("*.json"))
        ]
    else:
        found = [(None, file) for file in sorted(path.glob("*.json"))] if path.is_dir() else []
    if not found:
        raise Refusal(
            "there are no files in LEAF's format", where=str(path), remedy="name a .json file, or a folder of them"
        )
    return found


def read_file(file: Path) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(user, its data, its hierarchy) of one file, in the order of `users`."""
    remedy = "make the file again with LEAF's scripts"
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the file is not whole JSON ({error})", where=str(file), remedy=remedy) from None
    for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise Refusal(f"the file has no '{key}'", where=str(file), remedy=remedy)
    users, numbers, above = content["users"], content["num_samples"], content.get("hierarchies")
    above = above if isinstance(above, list) else [""] * len(users)
    for key, given in (("num_samples", numbers), ("hierarchies", above)):
        if len(given) != len(users):
            raise Refusal(f"'{key}' has {len(given)} entries for {len(users)} users", where=str(file), remedy=remedy)
    for user, number, group in zip(users, numbers, above, strict=True):
        own = content["user_data"].get(user)
        check_user(own, number, UserPlace(file, str(user)))
        yield str(user), own, str(group)


def check_user(own: Any, number: int, place: UserPlace) -> None:
    """Refuse a user without as many entries as the file says it has."""
    if not isinstance(own, dict):
        raise place.refusal("the user is missing in 'user_data'")
    for key in ("x", "y"):
        if not isinstance(own.get(key), list):
            raise place.refusal(f"the user has no '{key}'")
        if len(own[key]) != number:
            raise place.refusal(f"'{key}' has {len(own[key])} entries, and 'num_samples' says {number}")


def read_clients(parts: list[tuple[int | None, Path]], encoding: Encoding) -> Iterator[ClientRows]:
    for part, file in parts:
        for user, own, group in read_file(file):
            yield ClientRows(user, *encoded(own, encoding, UserPlace(file, user)), part, group)


def encoded(own: Mapping[str, Any], encoding: Encoding, place: UserPlace) -> tuple[Numbers, Numbers]:
    """A user's rows, without those that have no class."""
    x, y = encoding.x(own["x"], place), encoding.y(own["y"], place)
    if len(x) != len(y):
        raise place.refusal(f"'x' gives {len(x)} rows, and 'y' gives {len(y)}")
    known = y >= 0
    return x[known], y[known]


def labels(classes: int) -> Callable[[list[Any], UserPlace], Numbers]:
    """Whole numbers from 0 to below `classes`."""

    def encode(y: list[Any], place: UserPlace) -> Numbers:
        for one in y:
            if not isinstance(one, int) or not 0 <= one < classes:
                raise place.refusal(f"'y' has {one!r} where a class from 0 to {classes - 1} was expected")
        return np.array(y, np.int32)

    return encode


def femnist(_: Any) -> Encoding:
    def images(x: list[Any], place: UserPlace) -> Numbers:
        try:
            rows = np.array(x, np.float64).reshape(len(x), 28, 28, 1)
        except (ValueError, TypeError):
            raise place.refusal("'x' has an image that is not 784 numbers") from None
        if rows.size and not (rows.min() >= 0 and rows.max() <= 1):
            raise place.refusal("'x' has an image with numbers outside of 0 to 1")
        return np.round(255 * rows).astype(np.uint8)

    names = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    return Encoding(images, labels(62), Task((28, 28, 1), names, "character"))


def letters_of(text: str) -> list[int]:
    """Places among LEAF's letters; a character that is none of them counts as a blank."""
    blank = LETTERS.index(" ")
    return [blank if (place := LETTERS.find(one)) < 0 else place for one in text]


def shakespeare(_: Any) -> Encoding:
    def lines(x: list[Any], place: UserPlace) -> Numbers:
        if any(not isinstance(one, str) or len(one) != 80 for one in x):
            raise place.refusal("'x' has a line that is not 80 characters")
        return np.array([letters_of(one) for one in x], np.int32).reshape(len(x), 80)

    def following(y: list[Any], place: UserPlace) -> Numbers:
        if any(not isinstance(one, str) or len(one) != 1 for one in y):
            raise place.refusal("'y' has an entry that is not one character")
        return np.array([letters_of(one)[0] for one in y], np.int32)

    return Encoding(lines, following, Task((80,), tuple(LETTERS), "character"))


def word_set(text: str, words: int) -> Numbers:
    """1 at the place of every word that occurs; places follow from a checksum, so that nobody needs a vocabulary."""
    found = np.zeros(words, np.int8)
    found[[zlib.crc32(word.encode()) % words for word in WORD.findall(text.lower())]] = 1
    return found


def sent140(words: int) -> Encoding:
    def tweets(x: list[Any], place: UserPlace) -> Numbers:
        if any(not isinstance(one, list) or len(one) < 5 or not isinstance(one[4], str) for one in x):
            raise place.refusal("'x' has an entry without the text of a tweet as its fifth field")
        return np.array([word_set(one[4], words) for one in x], np.int8).reshape(len(x), words)

    return Encoding(tweets, labels(2), Task((words,), ("negative", "positive"), "sentiment"))


def celeba(images: str) -> Encoding:
    folder = Path(images).expanduser()
    if not images or not folder.is_dir():
        raise Refusal(
            "CelebA's pictures lie beside its files, and no such folder was named",
            where=f"[data] images = {images!r}",
            remedy='add images = "img_align_celeba", the folder of the .jpg files',
        )
    try:
        picture: Any = import_module("PIL.Image")
    except ImportError:
        raise Refusal("pictures cannot be read here", where="[data]", remedy="pip install pillow") from None

    def faces(x: list[Any], place: UserPlace) -> Numbers:
        rows = np.zeros((len(x), PICTURE, PICTURE, 3), np.uint8)
        for row, one in enumerate(x):
            file = folder / Path(str(one)).name
            if not file.is_file():
                raise place.refusal(f"'x' names the picture {one}, which is not in {folder}")
            with picture.open(file) as opened:
                rows[row] = np.asarray(opened.convert("RGB").resize((PICTURE, PICTURE)))
        return rows

    return Encoding(faces, labels(2), Task((PICTURE, PICTURE, 3), ("not smiling", "smiling"), "smile"))


def sequences(x: list[Any], place: UserPlace) -> list[list[str]]:
    """The sequences of ten words in a user's comments."""
    found = [words for comment in x if isinstance(comment, list) for words in comment]
    if any(not isinstance(words, list) or len(words) != 10 for words in found):
        raise place.refusal("'x' has a sequence that is not ten words")
    return found


def reddit(parts: list[tuple[int | None, Path]], vocabulary: int) -> Encoding:
    """The words are counted in a first reading of the training files."""
    counts: Counter[str] = Counter()
    for part, file in parts:
        if part != 2:
            for user, own, _ in read_file(file):
                counts.update(word for words in sequences(own["x"], UserPlace(file, user)) for word in words)
    known = [word for word, _ in counts.most_common() if word not in (PADDING, UNKNOWN)]
    names = (PADDING, UNKNOWN, *known[: max(0, vocabulary - 2)])
    places = {word: place for place, word in enumerate(names)}

    def tokens(x: list[Any], place: UserPlace) -> Numbers:
        rows = [[places.get(word, 1) for word in words] for words in sequences(x, place)]
        return np.array(rows, np.int32).reshape(len(rows), 10)

    def following(y: list[Any], place: UserPlace) -> Numbers:
        if any(not isinstance(one, dict) or not isinstance(one.get("target_tokens"), list) for one in y):
            raise place.refusal("'y' has an entry without 'target_tokens'")
        words = [str(words[-1]) for one in y for words in one["target_tokens"]]
        return np.array([-1 if word == PADDING else places.get(word, 1) for word in words], np.int32)

    return Encoding(tokens, following, Task((10,), names, "word"))


ENCODINGS: Mapping[str, Callable[[Any], Encoding]] = {
    "femnist": femnist,
    "shakespeare": shakespeare,
    "sent140": sent140,
    "celeba": celeba,
}
