"""`wardround list`: what a study file can name, and which package brings it."""

import json
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wardround.core.components.packages import OWN
from wardround.core.components.settings import type_text
from wardround.engine import registry


def list_command(kind: str | None, *, as_json: bool) -> None:
    chosen = registry.kinds() if kind is None else (kind,)
    wrong = registry.faults(kind)
    if as_json:
        told = [
            {
                "kind": component.kind,
                "name": component.name,
                "summary": component.summary,
                "package": component.package.name,
                "version": component.package.version,
                "parameters": [
                    {
                        "name": p.name,
                        "type": type_text(p.annotation),
                        "default": p.default,
                        "required": p.required,
                    }
                    for p in component.parameters
                ],
            }
            for one in chosen
            for component in registry.components(one).values()
        ]
        print(json.dumps({"components": told, "warnings": wrong}, default=str))
        return
    console = Console()
    for one in chosen:
        table = Table(title=one, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        table.add_column(style="dim")
        for component in registry.components(one).values():
            settings = ", ".join(p.name if p.required else f"{p.name}={p.default!r}" for p in component.parameters)
            words = Text(component.summary)
            if settings:
                words.append(f"\n{settings}", style="dim")
            table.add_row(component.name, words, Text(OWN.name if component.package == OWN else str(component.package)))
        console.print(table)
    for one in wrong:
        print(f"Warning: {one}.", file=sys.stderr)
