"""A run folder as a comparison of three methods at four hospitals leaves it, a poisoned one, and a reader of pages."""

import json
import math
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

HOSPITALS = ("Freetown", "Kenema", "Port Loko", "Bo")
METHODS = (("local", "Own model only"), ("fed_avg", "Common model"), ("weight_erosion", "Personal model"))
METRICS = ("roc_auc", "accuracy", "f1", "brier")
NASTY = (
    "<script>fired('text')</script>",
    "</script><script>fired('json')</script>",
    '"><img src=x onerror=fired("attribute")>',
    "<b onmouseover=fired('label')>bold</b><a href=\"javascript:fired('link')\">x</a>",
    "&lt;script&gt;fired('entity')&lt;/script&gt;",
    "<!--<script>",
    "%{customdata} $x^2$ [red]",
)


def measure(value: float, half: float) -> dict[str, Any]:
    return {"value": value, "low": max(0.0, value - half), "high": min(1.0, value + half)}


def example(
    hospitals: tuple[str, ...] = HOSPITALS,
    methods: tuple[tuple[str, str], ...] = METHODS,
    metrics: tuple[str, ...] = METRICS,
    rounds: int = 50,
    seed: int = 7,
) -> dict[str, Any]:
    """A run folder's files as values: what a comparison of three methods at four hospitals leaves behind."""
    draw = random.Random(seed)
    sites: list[dict[str, Any]] = []
    for name in hospitals:
        train = draw.randint(60, 260)
        parts = {"train": train, "validation": train // 3, "test": train // 3}
        sites.append({"name": name, **parts, "prevalence": round(draw.uniform(0.1, 0.5), 3)})
    listed, records, comparison = [], [], []
    for rank, (name, label) in enumerate(methods):
        scores = {
            site["name"]: {
                metric: measure(0.70 + 0.05 * rank + draw.uniform(-0.06, 0.1), 1.0 / math.sqrt(site["test"]) / 1.5)
                for metric in metrics
            }
            for site in sites
        }
        best = draw.randint(rounds // 2, rounds) if rounds > 2 else None
        for number in range(1, rounds + 1):
            own = {
                s["name"]: 0.42 + 0.3 * math.exp(-number / 9) + draw.uniform(-0.06, 0.06) - 0.04 * rank for s in sites
            }
            loss = {"weighted": sum(own.values()) / len(own), "sites": own}
            records.append(
                {"method": name, "repeat": 0, "round": number, "sites": list(own), "count": len(own), "rows": 500}
                | {"seconds": 0.01, "cpu_seconds": 0.02, "bytes_down": 4096, "bytes_up": 4096}
                | {"measures": {"validation_loss": loss}}
            )
        mean = {m: sum(own[m]["value"] for own in scores.values()) / len(scores) for m in metrics}
        spread = {m: sorted(own[m]["value"] for own in scores.values()) for m in metrics}
        listed.append(
            {
                "name": name,
                "label": label,
                "rounds": rounds,
                "best_round": best,
                "stopped_early": rank == 1,
                "seconds": 2.5 + rank,
                "compile_seconds": 1.5,
                "meters": {
                    "traffic": {"bytes_down": 204_800 * (rank + 1), "bytes_up": 204_800 * (rank + 1)},
                    "energy": {"watt_hours": 0.011 * (rank + 1), "grams_co2": 0.0053 * (rank + 1)},
                },
                "scores": {
                    "sites": scores,
                    "weighted": {m: measure(mean[m], 0.03) for m in metrics},
                    "unweighted": {m: {"value": mean[m] - 0.0123} for m in metrics},
                    "percentiles": {m: {"10": v[0], "50": v[len(v) // 2], "90": v[-1]} for m, v in spread.items()},
                    "intervals": {"level": 0.95, "resamples": 1000},
                    "reliability": [
                        {"predicted": x / 10 + 0.05, "observed": min(1, x / 10 + draw.uniform(0, 0.1)), "rows": 40}
                        for x in range(10)
                    ],
                },
            }
        )
    for site in (*hospitals, "all sites"):
        for one, other in ((2, 0), (2, 1), (1, 0)):
            if one < len(methods):
                gap = draw.uniform(-0.04, 0.12)
                verdict = "better" if gap > 0.05 else "worse" if gap < -0.05 else "no difference shown"
                comparison.append(
                    {"metric": metrics[0], "site": site, "method": methods[one][0], "against": methods[other][0]}
                    | {"difference": gap, "low": gap - 0.05, "high": gap + 0.05, "verdict": verdict}
                )
    task = {"kind": "classification", "target": "outcome", "classes": ["ebola", "other"], "positive": "ebola"}
    return {
        "manifest": {
            "wardround": "0.1.0",
            "python": "3.11.2",
            "platform": "Linux x86_64",
            "packages": {"jax": "0.10.2", "numpy": "2.3.4"},
            "study": {"study": {"name": "triage", "seed": 278}, "model": {"name": "logistic"}},
            "study_hash": "5f1d" * 16,
            "data_hash": "a07c" * 16,
            "seed": 278,
            "started": "2026-11-16T08:00:00Z",
            "finished": "2026-11-16T08:00:12Z",
            "command": "wardround compare triage.toml",
        },
        "rounds": records,
        "result": {
            "format": 1,
            "study": "triage",
            "kind": "compare",
            "task": task,
            "metric": metrics[0],
            "sites": sites,
            "methods": listed,
            "comparison": comparison,
            "truth": ["Freetown and Bo share one pattern; Kenema and Port Loko another."],
            "notes": ["Age was missing for 14 patients and filled with the median of all hospitals."],
        },
    }


def write(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("manifest", "result"):
        if name in files:
            (folder / f"{name}.json").write_text(json.dumps(files[name]))
    if "rounds" in files:
        (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in files["rounds"]))
    return folder


class Page(HTMLParser):
    """The page as a reader of HTML sees it: text outside scripts, table cells, attributes, script contents."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self.data: list[Any] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without start"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            if self.tags[-1][1].get("type") == "application/json":
                self.data.append(json.loads(data))
            return
        if "style" in self.open or "title" in self.open:
            return
        self.text += data
        if self.open[-1:] and {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def table(self, start: str) -> list[list[str]]:
        """The first table whose head has that first cell and whose rows include a hospital or more."""
        return next(table for table in self.tables if table[0][0] == start)


def poisoned() -> dict[str, Any]:
    """Every name that a user can choose is an attack."""
    methods = tuple((f"m{i}{bad}", bad) for i, bad in enumerate(NASTY[:3]))
    files = example(hospitals=NASTY, methods=methods, rounds=3)
    result = files["result"]
    result["study"] = NASTY[1]
    result["task"] |= {"target": NASTY[0], "positive": NASTY[2]}
    result["notes"], result["truth"] = list(NASTY), list(NASTY)
    result["comparison"][0]["verdict"] = NASTY[0]
    result["methods"][0]["scores"]["sites"][NASTY[0]]["roc_auc"] = {"value": None, "undefined": NASTY[2]}
    files["manifest"] |= {"command": NASTY[1], "wardround": NASTY[0], NASTY[2]: NASTY[3], "finished": NASTY[2]}
    return files
