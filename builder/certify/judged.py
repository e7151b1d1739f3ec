"""What the host judged of an image: the record that preflight goes by, and the certificates beside it.

Nothing inside a container can prove which image it is, or check a signature with a key that it was handed. So the host
judges, and writes down what it found; preflight only compares that with the image and the machine that it runs on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from builder.base.project import Project, write
from builder.certify import certificate, judgement
from builder.certify.certificate import Statement
from builder.image import context
from builder.lock.lockfile import Lock

RECORD, RAW = "certificates.json", "certificates"  # as runtime.preflight reads them


def folder(project: Project, stack: str) -> Path:
    """Where the record of a stack lies on this host; a container sees it as /run/vetted."""
    return project.state / "judged" / stack


def record(home: Project, lock: Lock, image: str, statements: Iterable[Statement], target: Path, scratch: Path) -> None:
    """Write the record of an image (its digest) to a folder, and nothing of an earlier one is left there.

    What does not hold today is left out.
    """
    terms = judgement.terms(home, lock)
    held_by = [one for one in statements if judgement.holds(one, terms, image)]
    files = [f"{number}.json" for number in range(len(held_by))]
    for name, one in zip(files, held_by, strict=True):
        write(target / RAW / name, one.to_json(), scratch)
    said = {
        "image": image,
        "stack": lock.name,
        "lock": lock.digest,
        "runtime": context.description(home, lock)["runtime"],
        "judged": str(certificate.today()),
        "certificates": [
            {
                "hardware": one.hardware,
                "issued": str(one.predicate.issued),
                "expires": str(one.predicate.expires),
                "file": name,
            }
            for name, one in zip(files, held_by, strict=True)
        ],
    }
    (target / RAW).mkdir(parents=True, exist_ok=True)
    write(target / RECORD, json.dumps(said, indent=2, ensure_ascii=False) + "\n", scratch)
    for path in {*(target / RAW).iterdir()} - {target / RAW / name for name in files}:
        path.unlink()
