"""`wardround leaf`: a set of natural clients, the reference methods on it, one table."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from wardround.core.text import format_bytes
from wardround.workflows.leaf import LeafRun, run_leaf

OUTPUT, ERRORS = Console(), Console(stderr=True)
MOST_GROUPS = 20
LABELS = {
    "minibatch_sgd": "minibatch SGD",
    "fed_avg": "FedAvg",
    "reptile": "Reptile",
    "local": "each client alone",
    "global_iid": "all rows in one place",
}


def leaf_command(asked: LeafRun, *, as_json: bool) -> None:
    found = run_leaf(asked, lambda name: ERRORS.print(f"training: {LABELS[name]}", style="dim"))
    if as_json:
        print(json.dumps(found))
        return
    told = found["statistics"]
    OUTPUT.print(
        f"{found['set']}: {told['devices']:,} devices, {told['samples']:,} samples, {told['mean']:,.1f} a device "
        f"(SD {told['sd']:,.1f}, from {told['smallest']:,} to {told['largest']:,})",
        highlight=False,
    )
    OUTPUT.print(accuracy_table(found))
    OUTPUT.print(cost_table(found))
    for name, one in found["methods"].items():
        if "refused" in one:
            OUTPUT.print(f"{LABELS[name]} was not run: {one['refused']}", markup=False, highlight=False)
        elif "by_hierarchy" in one:
            shown = ", ".join(
                f"{group} {share:.3f}" for group, share in list(one["by_hierarchy"].items())[:MOST_GROUPS]
            )
            OUTPUT.print(f"{LABELS[name]}, by hierarchy: {shown}", markup=False, highlight=False, soft_wrap=True)


def accuracy_table(found: dict[str, Any]) -> Table:
    table = Table(title="Accuracy on test rows", title_justify="left")
    for column in ("method", "by sample", "by device", "10th", "50th", "90th"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, one in found["methods"].items():
        if "refused" not in one:
            shares = [one["by_sample"], one["by_device"], *one["percentiles"].values()]
            table.add_row(LABELS[name], *(f"{share:.3f}" for share in shares))
    return table


def cost_table(found: dict[str, Any]) -> Table:
    """What it took, over all clients, to reach the target."""
    table = Table(title=f"Cost to reach {found['target']:g} by sample", title_justify="left")
    for column in ("method", "rounds", "FLOPs", "down", "up"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, one in found["methods"].items():
        if "refused" not in one:
            table.add_row(LABELS[name], *costs(one["reached"]))
    return table


def costs(reached: dict[str, Any] | None) -> list[str]:
    if reached is None:
        return ["not reached", "-", "-", "-"]
    down, up = (format_bytes(reached[way]) if reached[way] else "-" for way in ("bytes_down", "bytes_up"))
    return [str(reached["round"]), f"{reached['operations']:.2g}", down, up]
