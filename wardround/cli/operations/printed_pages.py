"""Lines of text as a PDF file: A4 landscape, a font that every reader has, nothing but text in it.

The format's own specification (ISO 32000-1, sections 7.5 and 9.6.2.2) needs no library for this. A character that the
font lacks is written as its number, so nothing is lost and nothing is guessed.
"""

import zlib
from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 842, 595, 36
SIZE, LEADING = 7, 9
"""Points of the font, and from line to line."""
LETTERS = int((WIDTH - 2 * MARGIN) / (0.6 * SIZE))
"""Characters in a line: Courier's are 0.6 of its size wide."""
LINES = (HEIGHT - 2 * MARGIN) // LEADING - 2
"""Lines on a page, but for its heading."""
INDENT = "    "


def pdf_bytes(heading: str, lines: Sequence[str]) -> bytes:
    """A file of as many pages as it takes; the heading and the page's number stand on each."""
    folded = [part for line in lines for part in fold(encoded(line))] or [""]
    sheets = [folded[start : start + LINES] for start in range(0, len(folded), LINES)]
    first = 4  # 1 is the catalog, 2 the list of pages, 3 the font
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(sheets)} /Kids [{kids(first, len(sheets))}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>",
    ]
    for number, sheet in enumerate(sheets, start=1):
        told = f"{encoded(heading)[: LETTERS - 20]}  page {number} of {len(sheets)}"
        text = zlib.compress(page_text([told, "", *sheet]))
        box = f"[0 0 {WIDTH} {HEIGHT}] /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Contents {len(objects) + 2} 0 R >>".encode())
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(text), text))
    return file_of(objects)


def kids(first: int, pages: int) -> str:
    return " ".join(f"{first + 2 * page} 0 R" for page in range(pages))


def encoded(line: str) -> str:
    """With what the font can show: other characters as their numbers."""
    return "".join(one if one.isprintable() and is_known(one) else f"\\u{ord(one):04x}" for one in line)


def is_known(character: str) -> bool:
    try:
        character.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def fold(line: str) -> list[str]:
    """As many lines as it takes, those after the first indented."""
    rest, step = line[LETTERS:], LETTERS - len(INDENT)
    return [line[:LETTERS], *(INDENT + rest[start : start + step] for start in range(0, len(rest), step))]


def page_text(lines: Sequence[str]) -> bytes:
    shown = b"\n".join(b"(" + escaped(line) + b") Tj T*" for line in lines)
    return b"BT /F1 %d Tf %d TL %d %d Td\n%s\nET" % (SIZE, LEADING, MARGIN, HEIGHT - MARGIN - SIZE, shown)


def escaped(line: str) -> bytes:
    raw = line.encode("cp1252")
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def file_of(objects: Sequence[bytes]) -> bytes:
    """The objects, and the table of where each of them begins."""
    content, places = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), list[int]()
    for number, one in enumerate(objects, start=1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(content))
    return bytes(content) + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table) + end
