"""Lighthouse's scores of a site's pages, in Debian's Chromium: records them in docs/evidence/lighthouse.json.

    ./vetted site --output public
    .venv/bin/python -m scripts.lighthouse public [--quick] [--record]

Needs scripts/install-browser. Lighthouse comes from npm into .vetted/lighthouse. Exits with 1 below 95.
--quick: one run on a phone, which is the harder device.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from builder.base.project import Project
from builder.pages import evidence
from tests.engine import browsing

ROOT = Path(__file__).resolve().parents[1]
VERSION = "lighthouse@12.8.2"  # the newest that runs on Node 18, Debian 12's
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
LEAST = 95
RUNS = {"phone": 3, "desktop": 1}
QUICK = {"phone": 1}
FURTHER = re.compile(r"-\d+(?=\.html$)")  # certificates-2.html is of the kind of certificates.html


def pages(folder: Path) -> list[str]:
    """The largest page of each kind: a list of a folder is another kind than what it lists."""
    answer = {}
    for path in sorted(folder.rglob("*.html"), key=lambda path: (path.stat().st_size, path)):
        place = path.relative_to(folder)
        kind = place.as_posix() if place.name == "index.html" else place.parts[0]
        answer[FURTHER.sub("", kind)] = place.as_posix()
    return sorted(answer.values())


def measure(address: str, program: Path, device: str) -> dict[str, int]:
    """The scores of a page, 0 to 100. `device`: a phone on a slow network, or a desktop."""
    flags = "--headless=new --disable-gpu --disable-dev-shm-usage" + (" --no-sandbox" if os.geteuid() == 0 else "")
    argv = [
        str(program),
        address,
        "--output=json",
        "--quiet",
        f"--chrome-flags={flags}",
        f"--only-categories={','.join(CATEGORIES)}",
    ]
    argv += ["--preset=desktop"] if device == "desktop" else []
    environment = {**os.environ, "CHROME_PATH": "/usr/bin/chromium"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"lighthouse: {done.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return {name: round(100 * report["categories"][name]["score"]) for name in CATEGORIES}


def typical(address: str, program: Path, device: str, count: int) -> dict[str, int]:
    """The median of each score over several runs: a busy machine makes single ones worse."""
    runs = [measure(address, program, device) for _ in range(count)]
    return {name: round(statistics.median(run[name] for run in runs)) for name in CATEGORIES}


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        sys.exit("usage: python -m scripts.lighthouse FOLDER [--quick] [--record]")
    folder, tools = Path(argv[0]), ROOT / ".vetted" / "lighthouse"
    quick, runs = (" --quick", QUICK) if "--quick" in argv else ("", RUNS)
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(tools), VERSION]
    subprocess.run(install, check=True)
    program = tools / "node_modules" / ".bin" / "lighthouse"
    scores: dict[str, dict[str, dict[str, int]]] = {}
    with browsing.serving(folder) as address:
        for page in pages(folder):
            scores[page] = {device: typical(address + page, program, device, count) for device, count in runs.items()}
            print(page, scores[page], flush=True)
    least = {name: min(s[device][name] for s in scores.values() for device in s) for name in CATEGORIES}
    print("least:", least)
    if "--record" in argv:
        head = evidence.head(f"python -m scripts.lighthouse public{quick} --record")
        scratch = ROOT / ".vetted"
        evidence.store(
            Project(ROOT),
            "lighthouse",
            {**head, "program": VERSION, "runs": runs, "least": least, "pages": scores},
            scratch,
        )
    return int(any(least[name] < LEAST for name in CATEGORIES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
