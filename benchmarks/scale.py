"""How do `list`, `show`, `site` and `verify` grow with the certificates of a project? `python -m benchmarks.scale`

    python -m benchmarks.scale [--sizes 100,1000,20000] [--sites 20000] [--folder DIR] [--only COMMAND…] [--record]

Makes projects with many certificates (benchmarks/scaled.py; 117 kB each, so 2.4 GB for 20 000), and runs each command
there as a person would: the first time, when nothing is kept of earlier judgements, and again. `verify` judges one
image, by what is attached to it; besides in projects of each size it is run on images with 1, 10 and 97 certificates.
The matrix and the lists are made and opened in Debian's Chromium (scripts/install-browser) for every size, a whole site
only up to --sites: those of 20 000 certificates take 7 GB of disk each, and there are two while one replaces another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import scaled
from benchmarks.scaled import Scaled
from builder.base import project
from builder.base.project import Project
from builder.pages import evidence
from builder.site import pages, site
from tests.engine import browsing

SIZES = (100, 1_000, 20_000)
ATTACHED = (1, 10, 97)  # with the other three statements, the last is as many as `verify` reads
COMMANDS = ("list", "show", "verify", "lists", "site")
LISTS = ("index.html.j2", "certificates.html.j2", "stack.html.j2", "list.html.j2")
ROOT = Path(__file__).parents[1]
LARGE = 60.0  # seconds of a first run, from which on a command is run again only once


@dataclass(frozen=True)
class Run:
    """A command: seconds, seconds of all cores with those of its children, and the memory of the largest of them."""

    seconds: float
    cpu: float
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints a row for each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="certificates, separated by commas")
    parser.add_argument("--folder", type=Path, help="for the projects; default: a temporary one")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS, help="commands")
    parser.add_argument("--sites", type=int, default=SIZES[-1], help="certificates up to which a whole site is made")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/scale.json")
    options = parser.parse_args(arguments)
    home, rows, images = project.find(), [], []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="scale-") as folder:
        for size in map(int, options.sizes.split(",")):
            sample = scaled.make(home, Path(folder) / str(size), size)
            rows.append({"certificates": size, "stacks": len(sample.stacks), "bytes": sample.bytes})
            only = [name for name in options.only if name != "site" or size <= options.sites]
            rows[-1] |= _row(sample, only, Path(folder))
            print(rows[-1], flush=True)
            if "verify" in options.only and size == max(map(int, options.sizes.split(","))):
                images = [_attached(sample, Path(folder), count) for count in ATTACHED]
            shutil.rmtree(sample.project.root)
        if options.record:
            command = "python -m benchmarks.scale --record"
            evidence.store(
                home, "scale", {**evidence.head(command), "cores": os.cpu_count(), "rows": rows, "images": images},
                Path(folder),
            )  # fmt: skip
    return 0


def _row(sample: Scaled, only: Sequence[str], folder: Path) -> dict[str, Any]:
    """The measurements in one project."""
    row: dict[str, Any] = {}
    if "list" in only:
        row["list"] = _twice(sample.project, "list")
    if "show" in only:
        row["show"] = _twice(sample.project, "show", sample.stacks[-1])
    if "verify" in only:
        (keys := folder / f"verify-{sample.project.root.name}").mkdir()
        layout, key = scaled.image(sample, keys, 1)
        run = _again(sample.project, "verify", str(layout), "--offline", "--key", str(key))
        row |= {"verify": round(run.seconds, 2), "verify_cpu": round(run.cpu, 2)}
    output = folder / f"site-{sample.project.root.name}"
    if "lists" in only:
        row["lists"] = _lists(sample, output)
        shutil.rmtree(output)
    row["site"] = None
    if "site" in only:
        row["site"] = {**_twice(sample.project, "site", "--output", str(output)), **_searched(output)}
        shutil.rmtree(output)
    return row


def _twice(home: Project, *argv: str) -> dict[str, float]:
    """A command with nothing kept, and again: seconds, seconds of all cores, and bytes of memory."""
    shutil.rmtree(home.state, ignore_errors=True)
    first = _run(home, *argv)
    print(f"{' '.join(argv[:2])}: {first}", file=sys.stderr, flush=True)
    again = _again(home, *argv, times=3 if first.seconds < LARGE else 1)
    return {
        "first": round(first.seconds, 2), "first_cpu": round(first.cpu, 2), "again": round(again.seconds, 2),
        "again_cpu": round(again.cpu, 2), "memory": max(first.memory, again.memory),
    }  # fmt: skip


def _again(home: Project, *argv: str, times: int = 3) -> Run:
    """The shortest of some runs: what else the machine does only adds."""
    shortest = min((_run(home, *argv) for _ in range(times)), key=lambda run: run.seconds)
    print(f"{' '.join(argv[:2])}, again: {shortest}", file=sys.stderr, flush=True)
    return shortest


def _run(home: Project, *argv: str) -> Run:
    """A command, as a person would run it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "builder", *argv], cwd=home.root, env=environment, stdout=out, stderr=out
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if child.returncode not in (0, 1):
            sys.exit(f"{' '.join(argv)} ended with {child.returncode}: {out.read()[-2000:].decode()}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


def _lists(sample: Scaled, output: Path) -> dict[str, Any]:
    """The matrix and the lists of a site, without a page for each certificate: their sizes, and how fast they open."""
    for path, source in pages.texts().items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        (output / path).write_bytes(source.read_bytes())
    content = site.read(sample.project, output, lambda _: None)
    for page in pages.pages(content):
        if page.template not in LISTS:
            continue
        (output / page.path).parent.mkdir(parents=True, exist_ok=True)
        (output / page.path).write_text(page.html(content))
    sizes = sorted(path.stat().st_size for path in output.rglob("*.html"))
    common = sum(path.stat().st_size for path in (output / "static").iterdir())
    measured: dict[str, Any] = {"pages": len(sizes), "largest": sizes[-1] + common}
    with browsing.serving(output) as address, browsing.browser() as browser:
        for name, path in (("matrix", "index.html"), ("all", "certificates.html"), ("stack", _largest(output))):
            browser.open(address + path)
            loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
            browser.wait(f"{loaded} > 0")
            measured[name] = round(float(browser.run(f"return {loaded}")) / 1000, 3)
        browser.open(address + "certificates.html")
        begin = time.perf_counter()
        browser.fill("form [name=text]", "EPYC 9654, 64")
        browser.wait("document.querySelector('output').textContent !== ''")
        measured["filter"] = round(time.perf_counter() - begin, 3)
    return measured


def _searched(output: Path) -> dict[str, Any]:
    """The pages of a site, and how long a browser takes to find certificates by their hardware."""
    sizes = sorted(path.stat().st_size for path in output.rglob("*.html"))
    measured: dict[str, Any] = {"pages": len(sizes), "files": sum(path.is_file() for path in output.rglob("*"))}
    measured["largest"] = sizes[-1] + sum(path.stat().st_size for path in (output / "static").iterdir())
    with browsing.serving(output) as address, browsing.browser() as browser:
        browser.open(f"{address}search.html?kind=certificate")
        begin = time.perf_counter()
        browser.fill("#search [name=text]", "EPYC 9654")
        browser.wait("document.querySelectorAll('#results li').length > 0")
        measured["search"] = round(time.perf_counter() - begin, 3)
    return measured


def _largest(site: Path) -> str:
    """The largest page of a stack."""
    path = max((site / "stacks").glob("*.html"), key=lambda path: path.stat().st_size)
    return path.relative_to(site).as_posix()


def _attached(sample: Scaled, folder: Path, count: int) -> dict[str, Any]:
    """How long `verify` takes for an image with so many certificates."""
    (own := folder / f"image-{count}").mkdir()
    layout, key = scaled.image(sample, own, count)
    run = _again(sample.project, "verify", str(layout), "--offline", "--key", str(key))
    return {"certificates": count, "seconds": round(run.seconds, 2), "cpu": round(run.cpu, 2)}


if __name__ == "__main__":
    sys.exit(main())
