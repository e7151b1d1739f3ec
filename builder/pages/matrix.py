"""The matrix of stacks: their versions, and where each is certified."""

from __future__ import annotations

import dataclasses
import datetime

from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import cells
from builder.pages.cells import Markdown

COLUMNS = ("trl", "vllm", "torch", "transformers", "deepspeed", "bitsandbytes")


def certified_where(project: Project, lock: Lock, day: datetime.date | None = None) -> list[str]:
    """The places where a certificate applies to today's lock, suite and image.

    With a day, a certificate that expired by then says so. Documents give none: they stay the same from day to day.
    """
    statements = certificate.of_stack(project, lock.name).values()
    if not statements:
        return []
    terms, places = judgement.terms(project, lock), []
    for statement in statements:
        last = min(statement.predicate.expires or terms.day, terms.day)
        if not judgement.against(statement, dataclasses.replace(terms, day=last)):
            what = "image" if statement.resource(certificate.INPUTS).digest else "lock"
            lapsed = day and statement.lapsed(day)
            places.append(f"{statement.hardware} ({what})" + (f", {lapsed}" if lapsed else ""))
    return places


def versions(lock: Lock) -> dict[str, str]:
    return {
        column: next((lock.versions[n] for n in (column, f"{column}-cpu") if n in lock.versions), "–")
        for column in COLUMNS
    }


def matrix(project: Project) -> str:
    rows = []
    for name in stack.names(project):
        lock = lockfile.load(project, name)
        places = cells.joined(certified_where(project, lock), "<br>") or Markdown("**not certified**")
        rows.append([cells.code(name), *versions(lock).values(), places])
    return cells.table(["stack", *COLUMNS, "certified on"], rows)
