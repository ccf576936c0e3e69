"""How a study's model does for the site's own patients: exact figures, which stay at the site.

What leaves is coarse and leaves out small groups; whoever works at the site may know.
"""

import json
from pathlib import Path
from typing import Any

from wardround.core.contracts import Report
from wardround.core.files import write_whole
from wardround.report.metric_names import label_of
from wardround.runs.json_files import read_json

FILE = "figures.json"


def keep_figures(folder: Path, site: str, block: Report) -> None:
    """Write the exact figures down in the study's folder at the site."""
    own = {"rows": block["rows"][site], "figures": block["sites"][site]}
    write_whole(folder / FILE, json.dumps(own, indent=1).encode())


def own_figures(folder: Path) -> dict[str, Any] | None:
    """What was kept; none before the study has ended."""
    path = folder / FILE
    return read_json(path, "they are written again when the study ends") if path.exists() else None


def figure_lines(own: dict[str, Any]) -> list[str]:
    """A sentence, and a line for every figure."""
    lines = [f"On {own['rows']:,} of your patients who were not used for training; these figures stay at your site:"]
    for name, told in own["figures"].items():
        value, low, high = (told.get(key) for key in ("value", "low", "high"))
        if value is None:
            lines.append(f"{label_of(name)}: not defined ({told.get('undefined', 'too few patients')})")
        else:
            between = f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
            lines.append(f"{label_of(name)}: {value:.3f}{between}")
    return lines
