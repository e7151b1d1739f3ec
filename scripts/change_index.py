"""Which change fixed what, and the first release that has it.

    python -m scripts.change_index NAME=REPOSITORY…
    python -m scripts.change_index --check

Reads the history of git repositories and writes one file a package into doctor/know/changes/. Of every change that
calls itself a fix, or closes an issue, it keeps facts: its number, the issues that it closes, the releases before and
with it, and the identifiers in its title, its text and its lines. No prose is kept. `vetted doctor` looks the
identifiers of an error up there.

A release is a tag. A repository without tags says its next version in a file: the commits before that version was
raised are in the release before it.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

from packaging.version import InvalidVersion, Version

FOLDER = Path(__file__).resolve().parents[1] / "doctor" / "know" / "changes"
# Where its threads are, and the first release whose changes are read.
PACKAGES = {
    "trl": ("huggingface/trl", "0.13.0"),
    "transformers": ("huggingface/transformers", "4.44.0"),
    "vllm": ("vllm-project/vllm", "0.6.0"),
    "deepspeed": ("deepspeedai/DeepSpeed", "0.14.0"),
    "peft": ("huggingface/peft", "0.11.0"),
    "accelerate": ("huggingface/accelerate", "0.33.0"),
    "bitsandbytes": ("bitsandbytes-foundation/bitsandbytes", "0.43.0"),
    "unsloth": ("unslothai/unsloth", "2024.8"),
    "verl": ("verl-project/verl", "0.1"),
    "openrlhf": ("OpenRLHF/OpenRLHF", "0.4.0"),
    "llamafactory": ("hiyouga/LLaMA-Factory", "0.8.0"),
    "ms-swift": ("modelscope/ms-swift", "2.4.0"),
    "axolotl": ("axolotl-ai-cloud/axolotl", "0.4.0"),
    "liger-kernel": ("linkedin/Liger-Kernel", "0.3.0"),
    "flash-attn": ("Dao-AILab/flash-attention", "2.5.0"),
    "sglang": ("sgl-project/sglang", "0.4.0"),
}
# The file with the next version, where the tags are missing; and a version that was raised late: what came before that
# is in the later release at the latest.
VERSION_FILES = {"transformers": "src/transformers/__init__.py", "unsloth": "unsloth/models/_utils.py"}
LATE = {"transformers": {"5.3.0": "5.4.0"}}
# Branches of releases, where later tags are missing.
BRANCHES = {"vllm": {"0.23.0": "upstream-v0.23.0", "0.24.0": "varun/v0.24.0"}}
FIX = re.compile(
    r"\bfix|\bbug|\bprevent|\bcorrect|\bavoid|\brevert|\bworkaround|\bcompat|\bhandle|\bcrash", re.IGNORECASE
)
ASIDE = re.compile(r"\b(docs?|typos?|ci|readme|lint|style|changelog|studio)\b", re.IGNORECASE)
NUMBER = re.compile(r"\(#(\d+)\)\s*$")
CLOSES = re.compile(r"\b(?:fix(?:es|ed)?|close[sd]?|resolve[sd]?):?\s+(?:[\w.-]+/[\w.-]+)?#(\d+)", re.IGNORECASE)
WORD = re.compile(
    r"--[a-z][a-z0-9-]{3,40}|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z]*_\w{2,60}|[A-Z][a-z0-9]+[A-Z]\w{2,60}"
    r"|[A-Z]{2,}[a-z]\w{2,60}|[a-z]+[A-Z]\w{2,60}"
)
PERSON = re.compile(r"^.*(?:-by:|[\w.+-]+@[\w-]+\.).*$|https?://\S+", re.MULTILINE)  # names and addresses of people
HUNK = re.compile(r"^@@[^@]*@@.*?(?:def|class)\s+(\w+)")
MOST_WORDS = 28  # code-words of a change, the rarest first
COMMON = 12  # changes of a package that a code-word may be in
MOST_LINES = 400  # of a change: a larger one is a rewrite
MARK, PART = "\x1e", "\x1f"


class Row(NamedTuple):
    """A change: its number, the issues that it closes, the last release without it, the first with it, code-words."""

    number: int
    issues: list[int]
    after: str
    release: str
    words: str


class Index(TypedDict):
    """A file: the repository of the threads, and the changes by number."""

    date: str
    repository: str
    until: str  # the last release that was read
    changes: list[Row]


class Span(NamedTuple):
    """The commits from one release to the next."""

    after: str
    release: str
    commits: str  # a range of git


def git(repository: str, *arguments: str) -> str:
    """The output of a git command."""
    argv = ["git", "-C", repository, *arguments]
    return subprocess.run(argv, capture_output=True, check=True).stdout.decode("utf-8", "replace")


def spans(package: str, repository: str, first: str) -> list[Span]:
    """From every release to the next, the commits between them."""
    points = _raised(package, repository) if package in VERSION_FILES else _tags(repository)
    for release, branch in BRANCHES.get(package, {}).items():
        points.append((Version(release), git(repository, "merge-base", "HEAD", branch).strip()))
    points = sorted(point for point in points if point[0] >= Version(first))
    late = LATE.get(package, {})
    return [
        Span(str(before), late.get(str(version), str(version)), f"{start}..{end}")
        for (before, start), (version, end) in itertools.pairwise(points)
    ]


def _tags(repository: str) -> list[tuple[Version, str]]:
    points = []
    for tag in git(repository, "tag").split():
        try:
            version = Version(tag.removeprefix("v"))
        except InvalidVersion:
            continue
        if not version.is_prerelease and not version.local:
            points.append((version, tag))
    return points


def _raised(package: str, repository: str) -> list[tuple[Version, str]]:
    """Each release, and the commit that ends it: that raises the version to it, or to the development after it."""
    file, named = VERSION_FILES[package], []
    for commit in git(repository, "log", "--reverse", "-G^__version__ *= ", "--format=%H", "--", file).split():
        match = re.search(r"^__version__ *= *\"(.+)\"", git(repository, "show", f"{commit}:{file}"), re.MULTILINE)
        if match:
            named.append((commit, Version(match[1])))
    points = {}
    for (before, earlier), (commit, later) in itertools.pairwise([("", Version("0")), *named]):
        if not later.is_devrelease:
            points[later] = commit
        elif before and later > earlier:
            # 5.0.1.dev0 comes after 5.0.0, and what is made then is first released in 5.1.0.
            own = f"{earlier.major}.{earlier.minor + 1}.0" if earlier.micro else earlier.base_version
            points[Version(own)] = commit
    return sorted(points.items())


def changes(repository: str, span: Span) -> Iterator[tuple[int, list[int], set[str]]]:
    """Number, closed issues and code-words of every fix between two releases."""
    form = f"--format={MARK}%s{PART}%b{PART}"
    paths = ["--", "*.py", ":!tests", ":!test", ":!docs", ":!examples"]
    log = git(repository, "log", "--no-merges", "-p", "-U0", "--no-color", "--no-renames", form, span.commits, *paths)
    for entry in log.split(MARK)[1:]:
        title, body, diff = entry.split(PART, 2)
        number = NUMBER.search(title)
        issues = sorted({int(issue) for issue in CLOSES.findall(f"{title}\n{body}")})
        if number is None or ASIDE.search(title) or not (issues or FIX.search(title)):
            continue
        lines = [
            line for line in diff.split("\n") if line.startswith(("+", "-", "@")) and line[:3] not in ("+++", "---")
        ]
        words = set(WORD.findall(PERSON.sub("", f"{title}\n{body}")))
        if len(lines) <= MOST_LINES:
            words |= {match[1] for match in map(HUNK.match, lines) if match}
            words |= {word for line in lines if line[0] == "-" for word in WORD.findall(line)}
            words |= {word for line in lines if line[0] == "+" and "import" in line for word in WORD.findall(line)}
        plain = {word.removeprefix("self.") for word in words}
        yield int(number[1]), issues, {word for word in plain if 5 < len(word) < 70}


def index(package: str, repository: str, today: str) -> Index:
    """The index of a package."""
    threads, first = PACKAGES[package]
    rows: dict[int, tuple[list[int], Span, set[str]]] = {}
    read = spans(package, repository, first)
    for span in read:
        for number, issues, words in changes(repository, span):
            rows.setdefault(number, (issues, span, words))
    count = Counter(word for _, _, words in rows.values() for word in words)
    kept = []
    for number, (issues, span, words) in sorted(rows.items()):
        rare = sorted((count[word], word) for word in words if count[word] <= COMMON)[:MOST_WORDS]
        if rare:
            text = " ".join(sorted(word for _, word in rare))
            kept.append(Row(number, issues, span.after, span.release, text))
    return {"date": today, "repository": threads, "until": read[-1].release if read else "", "changes": kept}


def packed(entry: Index) -> bytes:
    """A file's bytes: the same for the same facts, without a time of writing."""
    return gzip.compress((json.dumps(entry, indent=0, separators=(",", ":")) + "\n").encode(), mtime=0)


def wrong(folder: Path) -> list[str]:
    """What is wrong with the files: not as the generator writes them, out of order, or larger than 10 MB in all."""
    faults = []
    names = sorted(path.name.removesuffix(".json.gz") for path in folder.glob("*.json.gz"))
    if json.loads((folder / "index.json").read_text())["packages"] != names:
        faults.append("index.json does not list the files beside it")
    for name in names:
        content = (folder / f"{name}.json.gz").read_bytes()
        entry: Index = json.loads(gzip.decompress(content))
        rows = [Row(*row) for row in entry["changes"]]
        if packed(entry) != content:
            faults.append(f"{name}: its bytes are not those of its content")
        if not entry["date"] or [row.number for row in rows] != sorted({row.number for row in rows}):
            faults.append(f"{name}: it has no date, or its changes are not in order")
        if any(Version(row.after) >= Version(row.release) for row in rows):
            faults.append(f"{name}: a change is in a release before the one that lacks it")
    if sum(path.stat().st_size for path in folder.glob("*")) > 10_000_000:
        faults.append("the files are larger than 10 MB in all")
    return faults


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("repositories", nargs="*", metavar="NAME=REPOSITORY")
    parser.add_argument("--check", action="store_true", help="check the files in doctor/know/changes and write nothing")
    options = parser.parse_args()
    if options.check:
        faults = wrong(FOLDER)
        print("\n".join(faults), file=sys.stderr)
        return 1 if faults else 0
    FOLDER.mkdir(exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for argument in options.repositories:
        name, _, repository = argument.partition("=")
        entry = index(name, repository, today)
        (FOLDER / f"{name}.json.gz").write_bytes(packed(entry))
        print(f"{name}: {len(entry['changes'])} changes until {entry['until']}", file=sys.stderr)
    names = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
    (FOLDER / "index.json").write_text(json.dumps({"packages": names}, indent=0) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
