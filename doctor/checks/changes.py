"""What others have already solved: a change whose code-words are those of the error, and the first release with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know import changes, owners
from doctor.know.changes import Match

IDENTIFIER = re.compile(r"[A-Za-z]*_\w+|[A-Z]?[a-z0-9]+(?:[A-Z]+[a-z0-9]*)+|[A-Z]{2,}[a-z]\w+")
QUOTED = re.compile(r"['\"`]([A-Za-z]*_\w+|[A-Z][a-z0-9]+[A-Z]\w+)['\"`(]")
PATH = re.compile(r"\w*(?:[./]\w+)+")  # modules and files are no code-words: every error of a file would be the same
FRAME = re.compile(r'^\s*File "[^"\n]*", line \d+, in (?P<function>\w+)')
MOST_WORDS = 200  # identifiers of an error that are searched for
MOST = 2  # findings


def solved_elsewhere(case: Case) -> Iterator[Finding]:
    """For each package that is installed or named, the change that says most of what the error says."""
    if not case.error:
        return
    message, places = _identifiers(case.error)
    quoted = [word for word in QUOTED.findall(case.error)[-MOST_WORDS:] if _specific(word)]
    named = {owners.of_class(word) for word in IDENTIFIER.findall(case.error)} | set(owners.frames(case.error))
    matches = []
    for package in changes.packages():
        version = case.version(package)
        if version is None and package not in named and not _mentions(case.error, package):
            continue
        if version is not None and versions.parse(version) is None:
            continue
        match = changes.best(package, version, quoted, message, places)
        if match is not None:
            matches.append(match)
    for match in sorted(matches, key=lambda match: -match.score)[:MOST]:
        yield _finding(case, match)


def _identifiers(error: str) -> tuple[list[str], list[str]]:
    """The identifiers that the lines of an error say, and the functions of its frames."""
    message: dict[str, None] = {}
    places: dict[str, None] = {}
    in_frame = False
    for line in reversed(error.splitlines()):  # what ended the run is last
        frame = FRAME.match(line)
        if frame is not None:
            places.setdefault(frame["function"])
        elif not (line.startswith("    ") and in_frame):
            words = dict.fromkeys(IDENTIFIER.findall(PATH.sub(" ", line)))
            message.update(words if len(message) < MOST_WORDS else {})
        in_frame = frame is None and (in_frame or "Traceback" not in line)
    common = {"__init__", "__call__", "forward", "main", "wrapper", "_call_impl", "_wrapped_call_impl"}
    specific = [word for word in message if _specific(word)]
    return specific[:MOST_WORDS], [place for place in list(places)[:MOST_WORDS] if place not in common]


def _mentions(error: str, package: str) -> bool:
    return re.search(rf"\b{re.escape(package).replace('-', '[-_]')}\b", error, re.IGNORECASE) is not None


def _specific(word: str) -> bool:
    """Does a word tell more than which kind of error it is, or which class everybody uses?"""
    return not word.endswith(("Error", "Exception", "Warning")) and owners.of_class(word) is None


def _finding(case: Case, match: Match) -> Finding:
    change = match.change
    package = change.package
    link = f"https://github.com/{change.repository}"
    closed = [f"{link}/issues/{issue}" for issue in change.issues]
    spelled = {word.lower(): word for word in re.findall(r"\w+", case.error)}
    words = ", ".join(spelled.get(word, word) for word in match.words[:6])
    caller = next((frame for frame in reversed(owners.frames(case.error)) if frame != package), None)
    return Finding(
        rule="solved-elsewhere",
        title=f"{package} {change.release} has a fix for something that names {words}",
        packages=case.versions(package) or case.versions(package, caller),
        severity="crash",
        confidence="possible",
        evidence=[
            f"{change.repository}#{change.number} is in {change.release} and not in {change.after}; both name {words}",
            *([f"it closes {' and '.join(f'#{issue}' for issue in change.issues[:3])}"] if change.issues else []),
        ],
        remedy=[f"{package}>={change.release}, if the change is about this"],
        decide=[closed[0] if closed else f"{link}/pull/{change.number}"],
        links=[f"{link}/pull/{change.number}", *closed],
        ranges={package: [f"<={change.after}"]},
        shown=POINTS,
        weight=0.05 + min(match.score, 60.0) / 1000,
    )
