"""How old is what the doctor knows, and is every file as it should be? `python -m scripts.knowledge [--check]`

Prints the date of each file in doctor/know/. With --check it ends with 1 where a file has no date, is not in order, or
is not as its generator writes it. It reads nothing from the index.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doctor.base import versions
from doctor.know import threads
from scripts import api_history, change_index, published, use_history

FOLDER = Path(__file__).resolve().parents[1] / "doctor" / "know"


def dates(folder: Path = FOLDER) -> dict[str, str]:
    """The date of every file; of the lines of a file, the newest."""
    named = {path.relative_to(folder).as_posix(): _date(path) for path in sorted(folder.rglob("*")) if _has_date(path)}
    return {**named, "threads.jsonl": max(thread.date for thread in threads.load())}


def _has_date(path: Path) -> bool:
    return path.name.endswith((".json", ".json.gz")) and path.name != "index.json"


def _date(path: Path) -> str:
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    return str(document.get("date", ""))


def wrong() -> Iterator[str]:
    """What is wrong with any of the files."""
    for name, date in dates().items():
        if not api_history.is_date(date):
            yield f"{name}: {date!r} is no date"
    yield from wrong_threads()
    yield from wrong_cuda(json.loads((FOLDER / "cuda.json").read_text(encoding="utf-8")))
    yield from published.wrong()
    for folder, faults in ((api_history.FOLDER, api_history.wrong), (change_index.FOLDER, change_index.wrong),
                           (use_history.FOLDER, use_history.wrong)):  # fmt: skip
        yield from (f"{folder.name}: {fault}" for fault in faults(folder))


def wrong_threads() -> Iterator[str]:
    """Lines without a date."""
    for thread in threads.load():
        if not api_history.is_date(thread.date):
            yield f"threads.jsonl: {thread.package}, {thread.urls[0]}: {thread.date!r} is no date"


def wrong_cuda(tables: dict[str, Any]) -> Iterator[str]:
    """Ranges of torch that leave a gap or overlap, a table without a source, a version that is none."""
    for name in tables.keys() - {"date", "sources"}:
        if not tables["sources"].get(name):
            yield f"cuda.json: {name} has no source"
    ranges = [range_ for range_, _ in tables["torch"]]
    for release in versions.near(*ranges):
        count = sum(versions.allows(range_, release) for range_ in ranges)
        if count != 1:
            yield f"cuda.json: torch {release} is in {count} ranges"
    for torch, (first, last) in tables["flash_attn"].items():
        low, high = versions.parse(first), versions.parse(last)
        if low is None or high is None or low > high:
            yield f"cuda.json: flash-attn for torch {torch} ends before it begins"


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say what is wrong")
    options = parser.parse_args()
    if not options.check:
        for name, date in sorted(dates().items(), key=lambda row: (row[1], row[0])):
            print(f"{date or 'no date':<12} {name}")
    faults = list(wrong())
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
