"""Text made safe for the three places where it can do harm: HTML, the labels of a chart, and JSON inside a page.

Names of hospitals, columns and classes come from users. `Html` is what has been made safe; the type checker sees to it
that nothing else gets into the page, and a table makes safe whatever in it is not.
"""

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from wardround.core.text import plain_line


class Html(str):
    """Text that has been made safe."""

    __slots__ = ()


class FigureCell(NamedTuple):
    """A figure in a table, and what stands small beside it."""

    value: str
    beside: tuple[str, ...] = ()
    best: bool = False


Cell = str | FigureCell


def plain(text: object) -> str:
    """One line that can be written as UTF-8: without control characters, turned text and broken characters."""
    return plain_line(text) or "(no name)"


def safe(text: object) -> Html:
    """Text for HTML, inside an element or a quoted attribute."""
    return Html(html.escape(plain(text), quote=True))


def chart_label(text: object, longest: int = 32) -> str:
    """Text for a chart's label, which understands some HTML of its own; cut where it would push the chart away."""
    line = plain(text)
    if len(line) > longest:
        line = line[: longest - 1].rstrip() + "…"
    return html.escape(line, quote=False)


def script_json(value: Any) -> Html:
    """JSON that nothing can break out of when it stands inside a script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def join(parts: Iterable[Html], between: str = "") -> Html:
    return Html(between.join(parts))


def paragraph(text: Html, kind: str = "") -> Html:
    return Html(f'<p class="{kind}">{text}</p>' if kind else f"<p>{text}</p>")


def bullets(entries: Iterable[Html]) -> Html:
    return Html("<ul>" + "".join(f"<li>{entry}</li>" for entry in entries) + "</ul>")


def section(name: str, title: str, *parts: Html) -> Html:
    """A section with its heading, nothing when it has no parts."""
    inside = join(part for part in parts if part)
    if not inside:
        return Html("")
    heading = f'<h2 id="{name}-title">{safe(title)}</h2>'
    return Html(f'<section id="{name}" aria-labelledby="{name}-title">{heading}{inside}</section>')


def details(title: str, *parts: Html) -> Html:
    return Html(f"<details><summary>{safe(title)}</summary>{join(parts)}</details>")


def cell_html(cell: Cell) -> Html:
    """What stands in a cell, made safe if it is not."""
    if isinstance(cell, Html):
        return cell
    if isinstance(cell, str):
        return safe(cell)
    value = safe(cell.value)
    strong = f'<strong>{value}</strong><span class="sr"> (best)</span>' if cell.best else value
    return join([Html(strong), *(Html(f'<span class="interval">{safe(part)}</span>') for part in cell.beside)], " ")


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, kind: str = "") -> Html:
    """A table whose first column names the row; on a narrow screen it scrolls by itself and not with the page."""
    head = "".join(f'<th scope="col">{cell_html(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{cell_html(first)}</th>'
        + "".join(f"<td>{cell_html(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    start = f'<table class="{kind}" style="min-width:{7 * len(columns)}rem"><caption>{safe(caption)}</caption>'
    whole = f"{start}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return Html(f'<div class="scroll" role="region" aria-label="{safe(caption)}" tabindex="0">{whole}</div>')
