"""`wardround audit`: a ledger or an audit log read like a diary, and whether it is as it was written.

Also `audit replay` and `coordinator transcript`: whether a model follows from its transcript, and the file for it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from cryptography.x509 import Certificate

from wardround.cli.output import say
from wardround.core.errors import Refusal
from wardround.core.journals.journal import LONGEST, Violation
from wardround.core.journals.journal_head import Head, head_path, head_problems
from wardround.core.text import format_bytes
from wardround.deploy.home import CoordinatorHome, Home, SiteHome, keys_in
from wardround.deploy.protocol.study_id import is_meant
from wardround.deploy.trust.audit_log import BETWEEN, Entry, Examination, examine
from wardround.deploy.trust.certificates import read_certificate
from wardround.deploy.trust.log_heads import HEAD_BYTES, Keys, parse_head_json, read_witness
from wardround.deploy.trust.membership import STATEMENT_SEAL, Members, MembershipLog, head_problem, read_change
from wardround.incentives.ledger import Ledger
from wardround.report.html.markup import plain
from wardround.runs.json_files import read_json

if TYPE_CHECKING:
    from wardround.deploy.site.transcript_check import OwnFindings
    from wardround.deploy.trust.transcript.handout import TranscriptSource


def verify_command(path: Path, keys: Path | None, *, witnesses: Sequence[Path] = (), as_json: bool) -> None:
    """`audit verify`: exit code 2 where something is wrong."""
    if is_ledger(path):
        findings, name, whole = ledger_findings(path, keys), "ledger", "every entry is as its site signed it"
        whole = f"{whole}, and none is missing."
    elif is_membership_log(path):
        findings, whole = membership_findings(path)
        name = "log"
    else:
        examined, whole = examine_log(path, keys, witnesses)
        findings, name = examined.findings, "log"
    if as_json:
        typer.echo(json.dumps({name: str(path), "findings": [finding._asdict() for finding in findings]}))
    elif not findings:
        typer.echo(f"{path}: {whole}")
    else:
        for finding in findings:
            typer.echo(f"{path}: {finding}")
    if findings:
        raise typer.Exit(2)


def is_ledger(path: Path) -> bool:
    """A ledger signs each line, an audit log its end; where no line is left, the length of the head tells."""
    if not path.is_file():
        raise Refusal("there is no such ledger or audit log", where=str(path), remedy="check the path")
    with open(path, "rb") as file:
        for raw in iter(lambda: file.readline(LONGEST), b""):
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                return "signature" in line
    head = head_path(path)
    return head.is_file() and head.stat().st_size != HEAD_BYTES


def is_membership_log(path: Path) -> bool:
    """Its first entry is the coordinator itself; it has no head beside it, since sites sign how far they saw it."""
    with open(path, "rb") as file:
        try:
            read_change(json.loads(file.readline(LONGEST))["entry"])
        except (ValueError, KeyError, TypeError, RecursionError, Refusal):
            return path.name == "membership.jsonl"
    return True


def membership_findings(path: Path) -> tuple[list[Violation], str]:
    """What is wrong with a membership log, by its chain, its rules and the sites' statements that lie beside it."""
    chain = MembershipLog(path).chain()
    findings, members = [*chain.violations, *chain.torn], Members({})
    for line in chain.lines:
        problem = members.problem_with(line.entry)
        if problem:
            findings.append(Violation(line.number, f"it says that {line.entry.name} was {line.entry.kind}: {problem}"))
            break
        members = members.after(line.entry)
    seen = statements_beside(path)
    for one in seen:
        wrong = head_problem(members.public_keys(), one, STATEMENT_SEAL)
        findings += [Violation(0, f"the statement of {one.who}: {wrong}")] if wrong else []
        findings += [Violation(0, what) for what in head_problems(f"what {one.who} saw", one, chain.hashes, "log")]
    told = f"{len(chain.lines)} changes of membership, none changed or moved"
    confirmed = max((one.entries for one in seen), default=0)
    return findings, f"{told}; other parties' statements confirm {confirmed} of them."


RESTORE = "restore it from a backup"


def statements_beside(path: Path) -> list[Head]:
    """How far other parties have signed that they saw the log: in a coordinator's home, and in a site's."""
    kept = [read_json(one, RESTORE) for one in sorted((path.parent / "heads").glob("*.membership.json"))]
    state = path.with_suffix(".json")
    if state.exists():
        kept += read_json(state, RESTORE).get("statements", {}).values()
    try:
        return [parse_head_json(one) for one in kept]
    except ValueError as problem:
        raise Refusal(f"a statement about it cannot be read: {problem}", where=str(path), remedy=RESTORE) from None


def ledger_findings(path: Path, keys: Path | None) -> list[Violation]:
    public = {key.stem: key.read_text(encoding="utf-8") for key in sorted(keys.glob("*.pem"))} if keys else {}
    if not public:
        raise Refusal(
            "there are no public keys",
            where=str(keys) if keys else "--keys",
            remedy="put SITE.pem of every site into this folder"
            if keys
            else "name the folder with SITE.pem of every site",
        )
    return Ledger(path).verify(public)


def examine_log(path: Path, keys: Path | None, witnesses: Sequence[Path]) -> tuple[Examination, str]:
    """What a look at an audit log finds, and how far it can be trusted where nothing is wrong."""
    known = keys_of(path, keys)
    examined = examine(path, known, witnesses=[read_witness(one) for one in witnesses])
    examined = examined._replace(findings=[*examined.findings, *privacy_findings(path, examined.entries)])
    whole = f"{len(examined.entries)} entries, none changed, moved or missing"
    whole += "; signed by its owner." if known is not None else "; the signatures were not checked (--keys)."
    if examined.unchecked:
        names = ", ".join(plain(name) for name in examined.unchecked)
        whole += f" The countersignatures of {names} were not checked: put the certificates into the folder --keys."
    return examined, whole


def privacy_findings(path: Path, entries: Sequence[Entry]) -> list[Violation]:
    """What the log of a site's home shows to be wrong with the privacy ledger beside it."""
    if path.name != "audit.jsonl" or not (path.parent / "site.toml").exists():
        return []
    from wardround.deploy.site.release.privacy_budget import ledger_findings  # loads what few commands need

    return ledger_findings(SiteHome(path.parent), entries)


def keys_of(path: Path, folder: Path | None) -> Keys | None:
    """The keys in a folder of certificates, and in the home in which the log lies."""
    keys: dict[str, list[Any]] = {}
    for file, sort in (("site.toml", SiteHome), ("coordinator.toml", CoordinatorHome)):
        if path.name == "audit.jsonl" and (path.parent / file).exists():
            home: Home = sort(path.parent)
            keys |= {name: list(found) for name, found in home.public_keys().items()}
    if folder is not None:
        found = keys_in(folder)
        if not found:
            raise Refusal(
                "there are no public keys", where=str(folder), remedy="put NAME.pem of every party into this folder"
            )
        for name, more in found.items():
            keys.setdefault(name, []).extend(more)
    return keys or None


def show_command(path: Path, keys: Path | None, *, study: str | None = None, as_json: bool) -> None:
    """`audit show`: the diary of a log, or of a ledger; exit code 2 where it was changed."""
    if is_ledger(path):
        from wardround.cli.incentives import show_command as show_ledger

        show_ledger(path, keys, as_json=as_json)
        return
    examined, whole = examine_log(path, keys, ())
    entries = [entry for entry in examined.entries if study is None or is_about(entry, study)]
    if as_json:
        wrong = [finding._asdict() for finding in examined.findings]
        typer.echo(json.dumps({"log": str(path), "entries": entries, "findings": wrong}))
    else:
        for line in diary(entries, examined.findings, whole):
            typer.echo(line)
    if examined.findings:
        raise typer.Exit(2)


def is_about(entry: Mapping[str, Any], study: str) -> bool:
    """Whether an entry is about a study, named by its identifier, the beginning of one, or its name."""
    return is_meant(study, str(entry.get("study", "")))


def diary(entries: Sequence[Entry], findings: Sequence[Violation], whole: str) -> list[str]:
    """A heading a day, one line an entry, and at the end what left in all and how far it can be trusted."""
    lines, before = list[str](), ""
    for entry in entries:
        day, hour = clock(entry.get("time"))
        if day != before:
            lines += [*([""] if lines else []), day]
            before = day
        lines.append(f"  {hour}  {sentence(entry)}")
    left = [int(entry.get("bytes", 0)) for entry in entries if entry.get("kind") == "sent"]
    told = f"Sent {len(left)} {'message' if len(left) == 1 else 'messages'}, {format_bytes(sum(left))} in all."
    lines += ["", told if left else "Nothing was sent."]
    lines += [f"Error: {finding}" for finding in findings]
    return [*lines, "This log was changed: do not rely on it." if findings else f"Log: {whole}"]


def clock(time: object) -> tuple[str, str]:
    try:
        when = datetime.fromisoformat(str(time)).astimezone(UTC)
    except ValueError:
        return "(no time)", "--:--:--"
    return f"{when:%Y-%m-%d} (UTC)", f"{when:%H:%M:%S}"


def sentence(entry: Mapping[str, Any]) -> str:
    """An entry as somebody would tell it."""
    words = {key: plain(value) for key, value in entry.items() if isinstance(value, str | int | float) and value != ""}
    study, by = words.get("study", "?"), words.get("by", "?")
    why = f" ({words['why']})" if "why" in words else ""
    kind = words.get("kind", "?")
    if kind == "sent":
        return sent_sentence(entry, words)
    told = {
        "began": f"{words.get('site')} was set up, for the coordinator at {words.get('coordinator')}.",
        "joined": f"{words.get('site')} joined with a certificate valid until {words.get('until')}.",
        "offered": f"{words.get('submitter', 'someone')} offered {study}.",
        "approved": f"{by} approved {study} on the dataset {words.get('data')}, until {words.get('until')}.",
        "denied": f"{by} denied {study}{why}.",
        "withdrawn": f"{by} withdrew from {study}{why}.",
        "started": f"Started (wardround {words.get('version')}).",
        "renewed": f"The certificate of {words.get('site')} was renewed.",
        "revoked": f"{by} revoked {words.get('site')}{why}.",
        "reread": f"{by} let {study} ask again, about corrected data.",
        "told of end": f"The coordinator said that {study} {words.get('state')}{why}.",
        "told of revocation": f"The coordinator said that it revoked {words.get('site', 'this server')}{why}.",
        "mended": f"Repaired: {words.get('what')}.",
        "restored": f"{words.get('site', by)} went on after files were restored from a backup{why}.",
    }
    if kind == "countersigned":
        head = entry.get("head")
        reached = head.get("entries") if isinstance(head, Mapping) else "?"
        return f"{by} countersigned this log up to entry {plain(reached)}."
    if kind == "transcript":
        found = [plain(one) for one in (*(entry.get("problems") or ()), *(entry.get("remarks") or ()))]
        return f"The coordinator's transcript of {study} came: {'; '.join(found) or 'it matches this log'}."
    rest = ", ".join(f"{key} {value}" for key, value in words.items() if key not in ("time", "kind"))
    return told.get(kind, f"{kind}: {rest}.")


def array_words(name: str, shape: Sequence[int]) -> str:
    """An array as a person would call it: `['update']['w']` of shape [4, 2] is update/w (4 x 2 numbers)."""
    parts = re.findall(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)", name)
    called = "/".join(next(filter(None, part)) for part in parts) if parts else name
    sides = " x ".join(f"{side:,}" for side in shape)
    return f"{plain(called)} ({sides} numbers)" if sides not in ("", "1") else f"{plain(called)} (one number)"


def sent_sentence(entry: Mapping[str, Any], words: Mapping[str, str]) -> str:
    arrays = entry.get("arrays")
    shapes = arrays if isinstance(arrays, Mapping) else {}
    shown = [array_words(str(name), shape) for name, shape in list(shapes.items())[:4]]
    more = len(shapes) - len(shown) + int(entry.get("more_arrays", 0))
    arrays_told = f" with {', '.join(shown)}{f' and {more} more arrays' if more else ''}" if shown else ""
    said = entry.get("round")
    topic = words.get("topic", "?")
    if isinstance(said, int) and said != BETWEEN:
        topic = f"round {said}" if topic == "round" else f"{topic} in round {said}"
    size = format_bytes(int(entry.get("bytes", 0)))
    return f"Sent {size} to {words.get('to', '?')}: {topic} of {words.get('study', '?')}{arrays_told}."


# ---- transcripts ----


def pinned_words(home: SiteHome) -> dict[str, tuple[str, ...]]:
    """The fingerprints of this site and of its partners, those of keys that were replaced included."""
    from wardround.deploy.trust.fingerprints import fingerprint
    from wardround.deploy.trust.pins import read_partners

    own = {home.own_name: tuple(fingerprint(key) for key in home.public_keys().get(home.own_name, ()))}
    return own | {name: (one.fingerprint, *one.former) for name, one in read_partners(home).items()}


def replay_command(path: Path, home: Path | None, *, as_json: bool) -> None:
    """Check signatures, replay, compare with a site's own log; exit code 2 where something does not follow."""
    from wardround.deploy.site.transcript_check import OwnFindings
    from wardround.deploy.trust.transcript.entries import spoken
    from wardround.deploy.trust.transcript.handout import read_source
    from wardround.deploy.trust.transcript.replay import replay
    from wardround.deploy.trust.transcript.signatures import check_signatures

    source = read_source(path)
    site = None if home is None else SiteHome(home)
    if site is not None:
        _ = site.settings  # refuses here, with the folder's name, where there is none
    signed = check_signatures(source, authority_of(path, site), None if site is None else pinned_words(site))
    found = replay(source)
    own = own_findings(site, source) if site is not None else OwnFindings()
    problems = [one for one in (signed.problem, found.problem, *own.problems) if one]
    checked = [*signed.checked, *found.checked]
    if site is not None and not own.problems:
        checked.append(f"{own.found} answers of {site.own_name} are listed as they left, and none is missing")
    head = source.transcript.head
    words = spoken(head.hash) if head is not None else ""
    facts = {
        **asdict(found),
        "problem": problems[0] if problems else "",
        "problems": problems,
        "checked": checked,
        "remarks": [*signed.remarks, *found.remarks, *own.remarks],
        "fingerprint": words,
    }
    lines = [f"Transcript of {found.study or 'a study'}: {source.where}"]
    lines += [f"  checked: {one}" for one in checked]
    lines += [f"  not checked: {one}" for one in found.unchecked]
    lines += [f"  note: {one}" for one in facts["remarks"]]
    lines += [f"Its end in eight words, the same at every site: {words}"] if words else []
    if problems:
        lines.append(
            f"Error: {'; '.join(problems)}. Fix: do not use the model; ask the coordinator, and compare the eight "
            "words with other sites."
        )
    elif found.replayed == found.rounds:
        lines.append("The published model follows from the transcript, bit for bit.")
    else:
        lines.append("Nothing contradicts the transcript, but the rounds could not be computed again.")
    say(facts, lines, as_json)
    if problems:
        raise typer.Exit(2)


def authority_of(path: Path, site: SiteHome | None) -> Certificate | None:
    """The consortium's certificate: the site's, or that of the home in which a run folder lies."""
    if site is not None:
        return read_certificate(site.authority_path)
    for folder in path.absolute().parents:
        if (folder / "studies").is_dir() and (folder / "authority.pem").exists():
            return read_certificate(folder / "authority.pem")
    return None


def own_findings(site: SiteHome, source: "TranscriptSource") -> "OwnFindings":
    """What the site's own log says, and whether this is the transcript that came with the model."""
    from wardround.deploy.site.transcript_check import OwnFindings, check_own, stored_findings
    from wardround.deploy.trust.transcript.entries import NAME, load_transcript_head, spoken, transcript_folder

    opening, head = source.transcript.opening, source.transcript.head
    if opening is None or head is None:
        return OwnFindings()
    stored = stored_findings(site, opening.study)
    if not stored:
        raise Refusal(
            f"no model of {opening.study} has come to this site", where=str(site.path), remedy="name another --home"
        )
    findings = check_own(site, opening.study, source.transcript, str(stored["model"]))
    before = load_transcript_head(transcript_folder(site.folder(opening.study)) / NAME)
    if before is not None and before.hash != head.hash:
        findings.problems.append(
            f"{site.own_name} was given another transcript with the model, which ends with {spoken(before.hash)}"
        )
    return findings


def write_transcript(home: CoordinatorHome, study: str, out: Path, *, as_json: bool) -> None:
    """One file for the sites."""
    from wardround.deploy.trust.transcript.handout import hand_out

    known = sorted(one.name for one in (home.path / "studies").glob("*") if one.is_dir())
    meant = [one for one in known if study in (one, one.rpartition("-")[0])]
    if len(meant) != 1:
        what = "several studies have this name" if meant else "there is no such study"
        raise Refusal(what, where=str(home.path), remedy=f"name one of: {', '.join(known) or 'none'}")
    without = hand_out(home.folder(meant[0]) / "run", out)
    size = out.stat().st_size
    lines = [
        f"Wrote {out} ({format_bytes(size)}): the transcript of {meant[0]}, {'no sums' if without else 'its sums'}"
        " and the published model.",
        *(
            [f"Without the sums, since {without}: sites can check it, but not compute the rounds again."]
            if without
            else []
        ),
        f"A site checks it with: wardround audit replay {out.name} --home SITE_HOME",
    ]
    say({"study": meant[0], "file": str(out), "bytes": size, "without_sums": without}, lines, as_json)
