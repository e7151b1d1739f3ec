"""The draft of an advisory: what a bisection proved, in the format of advisories/, for a person to complete."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path

from builder.base import aliases, errors, machine
from builder.base.project import Project, write
from builder.bisect.packages import BreakingChanges
from builder.bisect.question import Question
from builder.intent import advisory
from builder.lock import index, metadata

# Their own code runs in most probes and commands: without them in the combination, a range would claim too much.
TRAINERS = ("trl", *aliases.providers("vllm"))
PLACES = ("issue", "bug", "tracker", "repository", "source", "github", "home")  # labels of a distribution's URLs
NOWHERE = "https://example.invalid/the-issue-upstream"


def next_id(project: Project) -> str:
    """The first number that is free."""
    numbers = [int(name.rpartition("-")[2]) for name in advisory.names(project)]
    return f"VETTED-{max(numbers, default=0) + 1:04d}"


def make(project: Project, result: BreakingChanges, question: Question, folder: Path, scratch: Path) -> Path:
    """Write the draft; returns its path."""
    name = next_id(project)
    path = folder / f"{name}.toml"
    for old in folder.glob("VETTED-????.toml"):
        old.unlink()
    write(path, text(result, question, name, upstream(result, scratch)), scratch)
    return path


def upstream(result: BreakingChanges, scratch: Path) -> str:
    """The URL that the first culprit declares for reports, or else for its source; NOWHERE without one."""
    culprit = result.culprits[0]
    lock, version = (result.bad, culprit.new) if culprit.new else (result.good, culprit.old)
    try:
        files, _ = index.offers(lock.stack, scratch, [f"{culprit.name}=={version}"])
    except errors.VettedError:
        return NOWHERE
    declared = metadata.declared(files[culprit.name][0])
    if declared is None:
        return NOWHERE
    urls = {label.lower(): url for label, url in declared.get("project_urls", {}).items()} | {
        "home-page": declared.get("home_page", "")
    }
    candidates = (url for place in PLACES for label, url in urls.items() if place in label)
    return next((url for url in candidates if re.fullmatch(r"https://[^\s/]+\.[^\s/]+/\S+", url)), NOWHERE)


def text(result: BreakingChanges, question: Question, name: str, url: str = NOWHERE) -> str:
    """The draft as TOML. It is a valid advisory."""
    words = " and ".join(
        f"{culprit.name} {culprit.new}" if culprit.new else f"no {culprit.name}" for culprit in result.culprits
    )
    affected = _affected(result)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# A draft. A bisection cannot know why it breaks, how far the ranges of versions reach (only these two ends",
        "# were run), what else of the set it takes, and which issue upstream it is: that is for a person to write.",
        f'id = "{name}"',
        f"summary = {_one_line(f'{question.name} fails with {words}')}",
        f'severity = "{_severity(result)}"',
        f"published = {today}",
        f"details = {_quoted(_details(result, question))}",
        *([f"symptoms = [{_quoted(_symptom(result.trial.reason))}]"] if _raised(result) else []),
        *([f"probes = [{_quoted(question.probe)}]"] if question.probe else []),
        f'references = [{{ type = "REPORT", url = {_quoted(url)} }}]',
        "",
        "[[affected]]",
        f"packages = {_table(affected)}" if affected else f"context = {{ note = {_one_line(words)} }}",
    ]
    for fix in _fixes(result) or [f"note = {_one_line(f'without {words}')}"]:
        lines += ["", "[[fix]]", fix]
    lines += ["", "[evidence]", 'kind = "executed"', f"says = {_one_line(_evidence(result))}", ""]
    return "\n".join(lines)


def _affected(result: BreakingChanges) -> dict[str, str]:
    """The combination of versions: the culprits, and the trainers beside them."""
    affected = {aliases.main_name(culprit.name): f"=={culprit.new}" for culprit in result.culprits if culprit.new}
    for trainer in TRAINERS:
        if trainer in result.bad.versions:
            affected.setdefault(aliases.main_name(trainer), f"=={result.bad.versions[trainer]}")
    return affected


def _fixes(result: BreakingChanges) -> list[str]:
    """One way out for each culprit: all were needed, so that one change taken back is enough."""
    return [
        f"packages = {_table({aliases.main_name(culprit.name): f'=={culprit.old}'})}"
        for culprit in result.culprits
        if culprit.old and culprit.old != culprit.new
    ]


def _details(result: BreakingChanges, question: Question) -> str:
    moved = ", ".join(map(str, result.dependencies))
    return (
        f"{question.name} passes on the good set, and fails on the same set with these changes alone: "
        f"{', '.join(map(str, result.culprits))}. None of these can be left out."
        + (f"\nThese moved with them, because they require it: {moved}." if moved else "")
        + f"\nThe reason: {result.trial.reason or result.trial.fault}\n"
    )


def _evidence(result: BreakingChanges) -> str:
    hardware = machine.hardware("cpu").hardware_class
    return f"both sets were installed and run on {hardware}; the lock of the bad one: {result.bad.digest}"


def _severity(result: BreakingChanges) -> str:
    if result.trial.fault in ("hang", "timeout"):
        return "hang"
    return "crash" if _raised(result) else "silent-wrong"


def _raised(result: BreakingChanges) -> bool:
    """Did it end by an exception, a signal or an exit status, and not by a number out of its bounds?"""
    return bool(re.search(r"(Error|Exception)$|^SIG|^crashed$|^oom$|^status ", result.trial.fault))


def _symptom(reason: str) -> str:
    """A pattern that matches the reason; numbers may differ."""
    return re.sub(r"\d+", r"\\d+", re.escape(reason.splitlines()[0][:120]) if reason else "the log says nothing")


def _table(packages: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f"{name} = {json.dumps(versions)}" for name, versions in packages.items()) + " }"


def _quoted(value: str) -> str:
    # A JSON string is a TOML string, but for the characters that TOML escapes as well.
    whole = value.encode(errors="replace").decode()  # TOML has no halves of surrogate pairs
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(value: str) -> str:
    return _quoted("".join(letter if letter.isprintable() else " " for letter in value)[:300])
