"""What each release of a package fixed, as words.

    python -m scripts.fix_history NAME=REPOSITORY… > doctor/know/fixes.json

Reads the tags of git repositories. Of every change that calls itself a fix it keeps its number, the first release that
has it, and the telling words of its title, sorted: what a report of the fault is likely to say too.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys

from packaging.version import InvalidVersion, Version

FIX = re.compile(
    r"\bfix|\bbug|\bprevent|\bhandle|\bcorrect|\bsupport\b|\bproper|\bavoid|\brevert|\bworkaround", re.IGNORECASE
)
NUMBER = re.compile(r"\(#(\d+)\)\s*$")
ASIDE = re.compile(
    r"\b(docs?|typo|ci|tests?|readme|docstring|example|notebook|lint|style|badge|changelog|hotfix|feat|chore|refactor|recipe)\b",
    re.IGNORECASE,
)
COMMON = {
    "fix",
    "fixes",
    "fixed",
    "fixing",
    "bug",
    "bugs",
    "the",
    "and",
    "for",
    "with",
    "when",
    "from",
    "not",
    "use",
    "using",
    "issue",
    "error",
    "errors",
    "add",
    "support",
    "handle",
    "handling",
    "correct",
    "properly",
    "proper",
    "avoid",
    "prevent",
    "revert",
    "make",
    "update",
    "remove",
    "wrong",
    "incorrect",
    "missing",
    "only",
    "case",
    "cases",
    "set",
    "into",
    "that",
    "this",
    "are",
    "more",
    "all",
    "new",
    "code",
    "type",
    "hint",
    "minor",
    "small",
    "some",
    "other",
    "allow",
    "model",
    "models",
    "training",
    "train",
    "trainer",
}
SINCE = {
    "trl": "0.13",
    "deepspeed": "0.15",
    "bitsandbytes": "0.44",
    "peft": "0.13",
    "accelerate": "1.0",
    "liger-kernel": "0.5",
    "verl": "0.2",
}


def git(repository: str, *arguments: str) -> str:
    """The output of a git command."""
    argv = ["git", "-C", repository, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def telling(title: str) -> list[str]:
    """The words of a title that say what was fixed."""
    words = re.findall(r"[a-z][a-z0-9_]{2,}|zero-?\d|fsdp\d?", title.lower())
    return sorted({word.replace("-", "") for word in words} - COMMON)


def releases(repository: str, first: str) -> list[tuple[Version, str]]:
    """The final releases from one on, each with its tag."""
    found = []
    for tag in git(repository, "tag").split():
        try:
            version = Version(tag.removeprefix("v"))
        except InvalidVersion:
            continue
        if not version.is_prerelease and version >= Version(first):
            found.append((version, tag))
    return sorted(found)


def fixes(repository: str, first: str) -> list[tuple[int, str, str]]:
    """Number, first release and telling words of every fix since a release, by number."""
    rows: dict[int, tuple[str, str]] = {}
    tags = releases(repository, first)
    for (_, before), (version, tag) in itertools.pairwise(tags):
        for title in git(repository, "log", "--format=%s", f"{before}..{tag}").splitlines():
            number = NUMBER.search(title)
            if number is None or not FIX.search(title) or ASIDE.search(title):
                continue
            words = telling(NUMBER.sub("", title))
            if len(words) >= 2:
                rows.setdefault(int(number[1]), (str(version), " ".join(words)))
    return [(number, *row) for number, row in sorted(rows.items())]


def main() -> None:
    """The program."""
    packages = []
    for argument in sys.argv[1:]:
        name, _, repository = argument.partition("=")
        rows = ",\n".join(json.dumps(row) for row in fixes(repository, SINCE[name]))
        packages.append(f"{json.dumps(name)}: [\n{rows}\n]")
    print("{" + ",\n".join(packages) + "}")


if __name__ == "__main__":
    main()
