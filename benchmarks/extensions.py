"""What does `vetted extend` make of packages that people train with? `python -m benchmarks.extensions [PACKAGE…]`

Thirty packages that the requirement lists of four projects name, each by itself, in its newest release: taken, or
refused with the pin that is in the way. Then packages of which a resolver takes a release of long ago, when the pins of
a stack are its constraints. `--build` also builds what has no wheel, and puts all that were taken into one extension,
which it builds and certifies; nothing else may run meanwhile, and BuildKit must not have its layer from an earlier run.
What is newest says pip, which knows nothing of the stack.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from benchmarks import extended
from builder.base import errors, project
from builder.base.project import Project
from builder.lock import extension, index, lockfile
from builder.lock.lockfile import Lock
from builder.pages import evidence, generate
from builder.pages.extensions import Extensions, Outcome

STACK = "trl1.16-cpu"
NAME = "bench-one"
# By the project whose list names them; each was looked up there. None is in the stack already.
PACKAGES = {
    "open-r1": ("distilabel", "e2b-code-interpreter", "hf-transfer", "jieba", "langdetect", "liger-kernel", "lighteval",
                "morphcloud"),
    "verl": ("codetiming", "hydra-core", "pybind11", "pylatexenc", "ray[default]", "tensordict", "torchdata"),
    "OpenRLHF": ("flash-attn", "jsonlines", "loralib", "optimum", "optree", "pynvml", "torchmetrics"),
    "ms-swift": ("attrdict", "gradio", "json-repair", "modelscope", "nltk", "oss2", "rouge", "scipy"),
}  # fmt: skip
# Those that were once taken in a release of a year or two before.
TRAPS = ("mlflow", "sglang", "swanlab", "trackio", "unsloth", "verl")
IN_THE_WAY = re.compile(r"(?:: (?P<old>.+) is in the way|in the way: (?P<pins>.+) of )")
LONGEST = 200  # characters of a reason


@dataclass(frozen=True)
class Answer:
    """What a command of vetted said, and how long it took."""

    code: int
    json: Any
    words: str
    seconds: float


class Bench:
    """Commands with the stacks of one folder, which goes afterwards."""

    def __init__(self, home: Project, lock: Lock, scratch: Path) -> None:
        self.home, self.lock, self.scratch = home, lock, scratch
        self.stacks = scratch / "stacks"
        self.stacks.mkdir()

    def vetted(self, *argv: str) -> Answer:
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "builder", *argv, "--json"], cwd=self.home.root,
            env={**os.environ, "PYTHONPATH": str(self.home.root), "VETTED_STACKS": str(self.stacks)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {}
        return Answer(done.returncode, answer, done.stderr, seconds)

    def extend(self, lines: Sequence[str], name: str = NAME) -> Answer:
        file = self.scratch / f"{name}.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        return self.vetted("extend", self.lock.name, str(file), "--name", name)

    def tried(self, package: str, source: str, *, build: bool) -> dict[str, Any]:
        """The row of a package. `build`: what has no wheel is built in the image, which says whether it can be."""
        answer, newest = self.extend([package]), self.newest(package)
        row = judged(answer, package, newest, self.lock.versions)
        if build and answer.json.get("source"):
            built = self.vetted("build", NAME)
            row |= judged(built, package, newest, self.lock.versions) if built.code else {}
        days = self.days(package, row["version"], row["newest"]) if row["version"] and row["newest"] else None
        print(f"{row['outcome']:<8} {package} {row['version']} {row['reason']}", file=sys.stderr, flush=True)
        return {"package": package, "project": source, **row, "days": days, "seconds": round(answer.seconds, 1)}

    def newest(self, package: str) -> str:
        """The newest final release for this Python that an index has, as pip finds it; empty when it finds none."""
        name = Requirement(package).name
        argv = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", name]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        match = re.match(r"\S+ \((?P<version>[^)]+)\)", done.stdout)
        return match["version"] if match else ""

    def days(self, package: str, version: str, newest: str) -> int | None:
        """The days between two releases; None where the index has no dates."""
        name, dates = Requirement(package).name, []
        for each in (version, newest):
            try:
                files, _ = index.offers(extension.plain(self.lock.stack), self.scratch, [f"{name}=={each}"])
            except errors.VettedError:
                return None
            dates += [min(file.uploaded for file in offers if file.uploaded) for offers in files.values()
                      if any(file.uploaded for file in offers)]  # fmt: skip
        return abs((dates[1] - dates[0]).days) if len(dates) == len((version, newest)) else None


def judged(answer: Answer, package: str, newest: str, parent: Mapping[str, str]) -> dict[str, Any]:
    """The outcome of an extension by one package, from its answer alone: what it did not say is wrong."""
    name = lockfile.normalise(Requirement(package).name)
    if answer.code != 0:
        error = answer.json.get("error", {"what": answer.words, "exit_code": answer.code})
        return _refused(error["what"], newest, parent) | _only(error["exit_code"] == errors.BadInputError.exit_code)
    version = answer.json["own"][name]
    told = next((each for each in answer.json["behind"] if each["name"] == name), None)
    gone = [each["name"] for each in answer.json["left_out"]]
    row = {
        "version": version, "newest": newest, "pins": told["in_the_way"] if told else [],
        "reason": f"it says that {', '.join(gone)} is left out" if gone else "",
    }  # fmt: skip
    outcome: Outcome = "newest"
    if told:
        outcome = "wrong" if told["far"] or not told["in_the_way"] else "behind"
        row["reason"] = row["reason"] if told["in_the_way"] else "nothing is named"
    elif not newest or Version(version) < Version(newest):
        outcome, row["reason"] = "wrong", "it is not the newest, and nothing is said"
    return {"outcome": outcome, **row}


def _only(expected: bool) -> dict[str, Any]:
    return {} if expected else {"outcome": "wrong"}


def _refused(what: str, newest: str, parent: Mapping[str, str]) -> dict[str, Any]:
    """A refusal is right when it names a pin of the parent, or another reason than that no release was found."""
    named = [match["old"] or match["pins"] for match in IN_THE_WAY.finditer(what)]
    pins = [pin for pin in ", ".join(named).split(", ") if parent.get(pin.partition(" ")[0]) == pin.partition(" ")[2]]
    old = re.search(r"^\S+ (?P<version>\S+), and not (?P<newest>[^\s:]+)", what, re.MULTILINE)
    outcome: Outcome = "wrong" if (old or "has no place for" in what) and not pins else "refused"
    return {
        "outcome": outcome, "version": old["version"] if old else "", "newest": old["newest"] if old else newest,
        "pins": sorted(set(pins)), "reason": "" if pins else _reason(what),
    }  # fmt: skip


def _reason(what: str) -> str:
    """The first line and the last, which is why."""
    lines = what.removeprefix(f"{NAME}: ").splitlines()
    return ": ".join(dict.fromkeys((lines[0], lines[-1])))[:LONGEST]


def _each(bench: Bench, packages: Sequence[str], *, build: bool) -> dict[str, Any]:
    """A row for each package."""
    listed = {each: source for source, names in PACKAGES.items() for each in names}
    names = packages or [*listed, *TRAPS]
    rows = {each: bench.tried(each, listed.get(each, ""), build=build) for each in names}
    return {
        "stack": STACK, "lock": bench.lock.digest, "packages": [row for each, row in rows.items() if each in listed],
        "traps": [row for each, row in rows.items() if each not in listed], "together": None,
    }  # fmt: skip


def _again(home: Project, lock: Lock) -> dict[str, Any]:
    """What is recorded of each package beside this very lock. Raises BadInputError when nothing is."""
    record = evidence.read(home, Extensions)
    if record is None or record.lock != lock.digest:
        raise errors.BadInputError(
            f"nothing is recorded of {STACK} as it is locked", next_step="python -m benchmarks.extensions --record"
        )
    fields = record.model_dump()
    return {name: fields[name] for name in ("stack", "lock", "packages", "traps", "together")}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: a row for each package on stderr; returns 1 where one was answered wrongly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extensions", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    parser.add_argument("--build", action="store_true", help="build and certify all that were taken, together")
    parser.add_argument("--together", action="store_true", help="only that, by what is recorded of each")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/extensions.json")
    options = parser.parse_args(arguments)
    home = project.find()
    lock = lockfile.load(home, STACK)
    with home.holding("extensions") as scratch:
        bench = Bench(home, lock, scratch)
        measured = _again(home, lock) if options.together else _each(bench, options.packages, build=options.build)
        rows, traps = measured["packages"], measured["traps"]
        if options.build or options.together:
            taken = [row["package"] for row in rows if row["outcome"] in ("newest", "behind")]
            measured["together"] = extended.measure(bench, taken)
        if options.record:
            command = " ".join(["python -m benchmarks.extensions", *(arguments or sys.argv[1:])])
            evidence.store(home, "extensions", {**evidence.head(command), **measured}, scratch)
            generate.refresh(home, scratch)
    print(json.dumps(measured["together"], indent=1))
    wrong = [row["package"] for row in (*rows, *traps) if row["outcome"] == "wrong"]
    print(
        f"{len(rows) + len(traps) - len(wrong)} of {len(rows) + len(traps)} answered rightly; wrong: {wrong or 'none'}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
