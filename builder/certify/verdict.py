"""The verdict on an image, for preflight: which certificates are valid, as the host judged them.

A program in a container cannot prove which image it runs in, nor check a signature with a key that it was handed. So
the host judges and writes the verdict; preflight only compares it with the image and the machine that it runs on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from builder.base.project import Project
from builder.base.project import write as write_file
from builder.certify import certificate, conditional, judgement
from builder.certify.certificate import Statement
from builder.image import context
from builder.lock.lockfile import Lock

# The file, and the folder of the certificates beside it, where runtime/ looks for them.
VERDICT, CERTIFICATES = "certificates.json", "certificates"
NUMBERED = re.compile(r"[0-9]+\.json")  # the names of files in CERTIFICATES


def folder(project: Project, stack: str) -> Path:
    """The folder of a stack's verdict on this host; a container has it as /run/vetted."""
    return project.state / "judged" / stack


def write(
    project: Project, lock: Lock, image: str, statements: Iterable[Statement], target: Path, scratch: Path
) -> None:
    """Write the verdict on an image (its digest) to the folder `target`, in place of an earlier one.

    It lists only certificates that are valid today. Beside it are the advisories that depend on a run's options.
    """
    terms = judgement.terms(project, lock)
    certificates = [statement for statement in statements if judgement.is_valid(statement, terms, image)]
    names = [f"{number}.json" for number in range(len(certificates))]
    for name, statement in zip(names, certificates, strict=True):
        write_file(target / CERTIFICATES / name, statement.to_json(), scratch)
    document = {
        "image": image,
        "stack": lock.name,
        "lock": lock.digest,
        "runtime": context.description(project, lock)["runtime"],
        "judged": str(certificate.today()),
        "certificates": [
            {
                "hardware": statement.hardware,
                "issued": str(statement.predicate.issued),
                "expires": str(statement.predicate.expires),
                "file": name,
            }
            for name, statement in zip(names, certificates, strict=True)
        ],
    }
    (target / CERTIFICATES).mkdir(parents=True, exist_ok=True)
    write_file(target / VERDICT, json.dumps(document, indent=2, ensure_ascii=False) + "\n", scratch)
    conditional.write(project, lock, target, scratch)
    for path in (target / CERTIFICATES).iterdir():
        if NUMBERED.fullmatch(path.name) and path.name not in names:  # the folder may be a user's own
            path.unlink()
