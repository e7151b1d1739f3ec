"""What releases declare to need of which the doctor has no history: doctor/know/published.json.

    python -m scripts.published
    python -m scripts.published --check

Asks the index for the metadata of the releases that the file lacks, and downloads no wheel. A list of versions has no
metadata of its own; `vetted doctor` looks up there what vLLM, torch, and Transformers and tokenizers of older days go
with.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from doctor.base import aliases
from scripts import api_history

FILE = Path(__file__).resolve().parents[1] / "doctor" / "know" / "published.json"
# The first release to read, and the one before which to stop: there the history of names begins.
PACKAGES = {
    "vllm": ("0.6.0", ""),
    "transformers": ("4.28.0", "4.38.0"),
    "tokenizers": ("0.13.0", "0.19.0"),
    "torch": ("2.0.0", ""),
}
KEPT = ("torch", "transformers", "numpy", "tokenizers", "huggingface-hub", "triton")  # what a release may need


def chosen(package: str) -> list[Version]:
    """The releases of a package to read."""
    first, end = PACKAGES[package]
    releases = [v for v in api_history.releases(package) if not v.is_prerelease and v.local is None]
    return [version for version in releases if version >= Version(first) and (not end or version < Version(end))]


def ask(package: str, version: Version) -> list[str] | None:
    """What a release declares to need of the packages that are kept, and of Python; None where it is not there."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed",
            "--report", "-", f"{package}=={version}"]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return lines_of(json.loads(done.stdout)["install"][0]["metadata"])


def lines_of(metadata: dict[str, Any]) -> list[str]:
    """The lines that are kept of a release's metadata."""
    needs = map(Requirement, metadata.get("requires_dist", []))
    kept = [need for need in needs if aliases.normalise(need.name) in KEPT and "extra" not in str(need.marker or "")]
    python = metadata.get("requires_python", "")
    lines = [
        # torch needs its own Triton on some systems and Pythons only.
        f"{aliases.normalise(need.name)}{need.specifier}" + (f"; {need.marker}" if need.name == "triton" else "")
        for need in kept
        if need.specifier
    ]
    return [*sorted(set(lines)), *([f"python{python}"] if python else [])]


def wrong() -> list[str]:
    """What is wrong with the file: its date, its order, a line that is no requirement."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    faults = [] if api_history.is_date(document.get("date", "")) else ["published.json has no date"]
    for package, releases in document["requires"].items():
        try:
            faults += [] if list(releases) == sorted(releases, key=Version) else [f"{package} is not in order"]
            for line in (line for lines in releases.values() for line in lines):
                Requirement(line)
        except (InvalidVersion, InvalidRequirement) as error:
            faults.append(f"{package}: {error}")
    return faults


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="look at the file, and read nothing")
    parser.add_argument("--package", action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    if options.check:
        faults = wrong()
        print("\n".join(faults), file=sys.stderr)
        return 1 if faults else 0
    for package in options.package or PACKAGES:
        for version in chosen(package):
            add(package, version)
    return 0


def add(package: str, version: Version) -> None:
    """Read one release, if the file lacks it, and write the file at once: an interruption loses nothing."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    known = document["requires"].setdefault(package, {})
    lines = None if str(version) in known else ask(package, version)
    if lines is None:
        return
    known[str(version)] = lines
    document["requires"][package] = {release: known[release] for release in sorted(known, key=Version)}
    document["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    FILE.write_text(json.dumps(document, indent=0, separators=(",", ":")) + "\n", encoding="utf-8")
    print(package, version, lines, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
