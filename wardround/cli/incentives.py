"""`wardround rewards` and `wardround ledger`: what partners earn, and the signed diary of who did what."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journals.journal import Violation
from wardround.core.journals.journal_head import Head
from wardround.incentives.ledger import Ledger
from wardround.incentives.ledger_entries import Kind, LedgerEntry
from wardround.incentives.ledger_keys import make_key, public_key, read_key
from wardround.incentives.rewards import RULES, cents, money
from wardround.incentives.statement import Facts, Score, as_number, read_facts, statement
from wardround.report.html.markup import plain
from wardround.runs.fields import items, mapping
from wardround.runs.read import read_object

SEEN = ("row_share", "weight_share", "limit")
"""What a site saw of its share before training."""


def rewards_command(folder: Path, rule: str, budget: str, *, out: Path | None, as_json: bool) -> None:
    """`rewards`: a budget divided among the sites of a finished run."""
    told = statement(read_facts(folder), rule, cents(budget))
    if out is not None:
        write_new(out, json.dumps(told, ensure_ascii=False) + "\n")
    if as_json:
        print(json.dumps({"folder": str(folder), **told}))
        return
    console = Console()
    console.print(reward_table(told))
    for line in (payer_words(told["payer"]), told["words"], *told["notes"]):
        console.print(plain(line), markup=False, highlight=False)
    if out is not None:
        console.print(f"Statement: {out}", markup=False, highlight=False, soft_wrap=True)


def reward_table(told: Mapping[str, Any]) -> Table:
    """A site a row, its money to the cent; the last row is the budget."""
    title = Text(f"{plain(told['study'])}: {money(told['budget_cents'])} by {RULES[told['rule']].by}")
    shown = Table(title=title, title_justify="left", show_footer=True)
    shown.add_column("site", footer="total")
    shown.add_column("based on")
    shown.add_column("earns", justify="right", footer=money(told["budget_cents"]))
    for one in told["payments"]:
        shown.add_row(Text(plain(one["site"])), Text(one["based_on"]), money(one["cents"]))
    if told["back_to_payer_cents"]:
        shown.add_row(Text("back to the payer", style="italic"), "", money(told["back_to_payer_cents"]))
    return shown


def payer_words(payer: str | None) -> str:
    if payer is None:
        return "No site asks in this study: whoever provides the budget pays, and every site can earn."
    return f"{payer} asked for the model, so it pays and is not paid."


def key_command(site: str, keys: Path, *, as_json: bool) -> None:
    """`ledger key`: a new key pair, SITE.key to keep and SITE.pem to give away."""
    if not re.fullmatch(r"[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,99}", site):
        remedy = "use at most 100 characters, no slashes or line breaks, and no dot at the start"
        raise Refusal(f"the site name {site!r} cannot be used as a file name", remedy=remedy)
    private, public = keys / f"{site}.key", keys / f"{site}.pem"
    if public.exists():
        raise Refusal("this site already has a key", where=str(public), remedy="use it, or choose another --keys")
    try:
        keys.mkdir(parents=True, exist_ok=True)
        # A private key without its public half is what an interruption leaves: the half is written anew.
        pem = public_key(read_key(private)) if private.exists() else make_key(private)
        write_whole(public, pem.encode())
    except OSError as problem:
        raise Refusal(
            f"the key cannot be written: {problem.strerror}", where=str(keys), remedy="choose another --keys"
        ) from None
    if as_json:
        print(json.dumps({"site": site, "private": str(private), "public": str(public)}))
        return
    typer.echo(f"Private: {private}  Keep it at {plain(site)}: whoever reads it can sign in its name.")
    typer.echo(f"Public:  {public}  Give it to whoever verifies the ledger (wardround audit verify --keys).")


def record_command(
    folder: Path, path: Path, key_path: Path, *, site: str | None, rewards: Path | None, as_json: bool
) -> None:
    """`ledger record`: what the site of a key can sign about a run, appended once."""
    key, who, facts = read_key(key_path), site or key_path.stem, read_facts(folder)
    public = key_path.with_name(f"{who}.pem")
    if public.is_file() and public.read_bytes().strip() != public_key(key).encode().strip():
        raise Refusal(
            f"this key is not {who}'s: it does not match {public.name} in the same folder",
            where=str(key_path),
            remedy="sign with the site's own key, or name the site with --site",
        )
    paid = None
    if rewards is not None:
        content = read_object(rewards)
        if content is None:
            remedy = "write one with `wardround rewards --out`"
            raise Refusal("there is no such statement", where=str(rewards), remedy=remedy)
        paid = check_statement(facts, content, str(rewards))
    wanted = entries_of(facts, who, timestamp(), paid)
    ledger = Ledger(path)
    there, findings = ledger.examine(None) if path.exists() else ((), [])
    if findings:
        raise Refusal(
            f"nothing was recorded, because the ledger is damaged: {findings[0]}",
            where=str(path),
            remedy="check it with `wardround audit verify`; after an interruption, run `wardround ledger mend`",
        )
    new, head = new_entries(wanted, there, str(path)), ledger.head()
    for entry in new:
        head = ledger.append(entry, key)
    if as_json:
        end = asdict(head) if head else None
        print(json.dumps({"ledger": str(path), "recorded": [entry.content() for entry in new], "head": end}))
        return
    for entry in new:
        typer.echo(f"Recorded: {sentence(entry)}")
    if not new:
        typer.echo("Nothing new: the ledger already holds everything that this site can sign about this run.")
    if head is not None:
        typer.echo(receipt(head))


def receipt(head: Head) -> str:
    return (
        f"The ledger now ends with entry {head.entries}, hash {head.hash}. Keep this line: if the ledger ever ends "
        "earlier, or has another hash there, it was rolled back."
    )


def mend_command(path: Path, key_path: Path, *, site: str | None, as_json: bool) -> None:
    """`ledger mend`: put right what an interrupted append leaves."""
    done = Ledger(path).mend(site or key_path.stem, read_key(key_path))
    if as_json:
        print(json.dumps({"ledger": str(path), "done": done}))
        return
    for line in done or ["there was nothing to repair, and nothing was changed"]:
        typer.echo(f"{path}: {line}.")


def show_command(path: Path, keys: Path | None, *, as_json: bool) -> None:
    """`ledger show`: the ledger as a diary; exit code 2 where it is not whole."""
    if not path.is_file():
        raise Refusal("there is no such ledger", where=str(path), remedy="check the path")
    public = (
        None if keys is None else {one.stem: one.read_text("utf-8", "replace") for one in sorted(keys.glob("*.pem"))}
    )
    if public == {}:
        raise Refusal("there are no public keys", where=str(keys), remedy="put SITE.pem of every site into this folder")
    entries, findings = Ledger(path).examine(public)
    if as_json:
        content = [entry.content() for entry in entries]
        wrong = [finding._asdict() for finding in findings]
        checked = public is not None
        print(json.dumps({"ledger": str(path), "entries": content, "findings": wrong, "signatures_checked": checked}))
    else:
        for line in diary(entries, findings, checked=public is not None):
            typer.echo(line)
    if findings:
        raise typer.Exit(2)


def diary(entries: Sequence[LedgerEntry], findings: Sequence[Violation], *, checked: bool) -> list[str]:
    """One line an entry, under the study and run that they are about, and at the end how far it can be trusted."""
    lines, before = list[str](), ""
    for place, entry in enumerate(entries, start=1):
        if entry.study != before:
            lines += [*([""] if lines else []), re.sub(r"([0-9a-f]{12})[0-9a-f]{52}", r"\1...", plain(entry.study))]
            before = entry.study
        when = datetime.fromisoformat(entry.time).astimezone(UTC)
        lines.append(f"{place:>4}  {when:%Y-%m-%d %H:%M} UTC  {sentence(entry)}")
    lines += [f"Error: {finding}" for finding in findings]
    if findings:
        return [*lines, "This ledger was changed: do not rely on it."]
    sites = len({entry.who for entry in entries})
    total = (
        f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'} by {sites} {'site' if sites == 1 else 'sites'}."
    )
    if checked:
        return [*lines, "", f"{total} Every entry is as its site signed it, and none is missing."]
    how = "to check them, use --keys"
    return [*lines, "", f"{total} The chain of hashes is intact; the signatures were not checked ({how})."]


def sentence(entry: LedgerEntry) -> str:
    """An entry as somebody would tell it."""
    who, phase = plain(entry.who), entry.phase
    if entry.kind == "chosen":
        order = sorted(entry.numbers, key=lambda site: entry.numbers[site])
        taken = [plain(site) for site in order if entry.numbers[site]]
        others = [plain(site) for site in entry.numbers if not entry.numbers[site]]
        told = f"chose as partners, best first: {', '.join(taken)}" if taken else "chose no partner"
        return f"{who} {told}{f'; not {join_names(others)}' if others else ''}."
    if entry.kind == "rewarded":
        paid = ", ".join(f"{plain(site)} {money(int(value))}" for site, value in entry.numbers.items())
        by = RULES[phase].by if isinstance(phase, str) and phase in RULES else plain(phase)
        return f"{who} paid {money(int(sum(entry.numbers.values())))} by {by}: {paid or 'nobody'}."
    numbers = dict(entry.numbers)
    if entry.kind == "answered" and phase == "training":
        first, last, count = (numbers.pop(name, "?") for name in ("first round", "last round", "rounds"))
        told = f"took part in {count} {'round' if count == 1 else 'rounds'} ({first} to {last})"
    else:
        told = {
            "joined": "agreed to train as a partner",
            "withdrew": "withdrew before training",
            "answered": f"answered in {f'round {phase}' if isinstance(phase, int) else f'the {plain(phase)}'}",
        }[entry.kind]
    known = [name for name in AMOUNTS if name in numbers]
    rest = ", ".join(amount(name, numbers[name]) for name in dict.fromkeys([*known, *numbers]))
    return f"{who} {told}{f' with {rest}' if rest else ''}."


AMOUNTS: Mapping[str, str] = {
    "rows": "{:,} training rows",
    "row share": "{:.1%} of the training rows",
    "weight share": "{:.1%} of the weight",
    "limit": "a limit of {:.1%}",
    "weight": "weights that add up to {:.4g}",
}


def amount(name: str, value: float) -> str:
    return AMOUNTS[name].format(value) if name in AMOUNTS else f"{plain(name)} {value:,}"


def join_names(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def write_new(path: Path, content: str) -> None:
    """Write a file that was not there: what somebody may have signed is never written over."""
    if path.exists():
        raise Refusal("this file already exists", where=str(path), remedy="choose another with --out")
    try:
        write_whole(path, content.encode())
    except OSError as problem:
        raise Refusal(
            f"the file cannot be written: {problem.strerror}", where=str(path), remedy="choose another --out"
        ) from None


def check_statement(facts: Facts, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A statement of rewards as it was written, if this run and its rule give the same cents."""
    rule, budget = content.get("rule"), content.get("budget_cents")
    if not isinstance(rule, str) or not isinstance(budget, int) or "payments" not in content:
        raise Refusal(
            "this is not a statement of rewards", where=where, remedy="write one with `wardround rewards --out`"
        )
    if content.get("run_hash") != facts.run_hash:
        raise Refusal(
            "these rewards belong to another run", where=where, remedy=f"compute them again from {facts.folder}"
        )
    fresh = statement(facts, rule, budget)
    given = {str(one.get("site")): one.get("cents") for one in map(mapping, items(content["payments"]))}
    for one in fresh["payments"]:
        if given.pop(one["site"], None) != one["cents"]:
            due = f"the run gives {one['site']} {money(one['cents'])}"
            raise Refusal(
                f"these rewards were changed: {due}",
                where=where,
                remedy="compute them again with `wardround rewards --out`",
            )
    if given:
        raise Refusal(
            f"these rewards were changed: {next(iter(given))} earns nothing here",
            where=where,
            remedy="compute them again with `wardround rewards --out`",
        )
    return fresh


def entries_of(facts: Facts, site: str, time: str, paid: Mapping[str, Any] | None = None) -> list[LedgerEntry]:
    """What one site can sign about a run, in the order in which it happened; the rewards are signed by who pays."""
    entries: list[LedgerEntry] = []

    def add(phase: str, kind: Kind, numbers: Mapping[str, float]) -> None:
        entries.append(LedgerEntry(site, facts.reference, phase, kind, numbers, time))

    rows = {"rows": facts.rows[site]} if site in facts.rows else {}
    seen = {name.replace("_", " "): as_number(facts.dilution.get(site, {}).get(name)) for name in SEEN}
    share = rows | {name: value for name, value in seen.items() if value is not None}
    if facts.partners is not None:
        if site == facts.asking:
            places = {other: place for place, other in enumerate(facts.partners, start=1)}
            add("choice", "chosen", {other: places.get(other, 0) for other in facts.others})
        elif site in facts.withdrawn:
            add("choice", "withdrew", share)
        elif site in facts.partners:
            add("choice", "joined", share)
        elif next(iter(facts.measures.values()), {}).get(site, Score(None)).value is not None:
            add("choice", "answered", rows)
    if facts.training and site in facts.training.presence:
        rounds, first, last = facts.training.presence[site]
        weight = {"weight": facts.training.weights[site]} if site in facts.training.weights else {}
        add("training", "answered", {"rounds": rounds, "first round": first, "last round": last} | rows | weight)
    if paid is not None:
        if site != facts.asking and (facts.asking is not None or site in facts.rows):
            payer = f"{facts.asking} pays" if facts.asking else "no site of this study pays"
            remedy = f"record the rewards with the key of {facts.asking or 'whoever pays'}"
            raise Refusal(f"{payer}, so {site} cannot sign what was paid", where=str(facts.folder), remedy=remedy)
        add(paid["rule"], "rewarded", {one["site"]: one["cents"] for one in paid["payments"]})
    if not entries:
        what = "did not choose, answer or take part" if site in facts.rows else "is not a site of this study"
        remedy = f"use the key of one of these sites: {', '.join(list(facts.rows)[:20])}"
        raise Refusal(f"{site} {what}, so there is nothing to record", where=str(facts.folder), remedy=remedy)
    return entries


def new_entries(wanted: Sequence[LedgerEntry], there: Sequence[LedgerEntry], where: str) -> list[LedgerEntry]:
    """Those that the ledger does not hold yet, so that recording a run again counts nothing twice."""
    new = []
    for entry in wanted:
        alike = [
            one
            for one in there
            if (one.who, one.study, one.kind) == (entry.who, entry.study, entry.kind)
            and (one.phase == entry.phase or entry.kind == "rewarded")  # a run is paid once, by whatever rule
        ]
        if any((one.phase, one.numbers) != (entry.phase, entry.numbers) for one in alike):
            raise Refusal(
                f"{entry.who} has already recorded '{entry.kind}' for this run with different numbers",
                where=where,
                remedy="entries cannot be changed: read them with `wardround ledger show` and agree on a correction",
            )
        if not alike:
            new.append(entry)
    return new
