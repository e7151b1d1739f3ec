"""A distribution whose files another one has overwritten: both bring the same module, and the older one came last."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from doctor.base import versions
from doctor.case import Case
from doctor.finding import EXPLAINS, POINTS, Finding


class Fork(NamedTuple):
    """A distribution that brings another one's module, in an old state of it."""

    name: str
    over: str  # whose module it brings
    module: str
    lacks: str  # names that the other one has and it lacks
    since: str  # the release of the other one that has them
    link: str


FORKS = (
    Fork(
        "adapter-transformers", "transformers", "transformers", "check_peft_version", ">=4.32",
        "https://github.com/huggingface/transformers/issues/26465",
    ),
)  # fmt: skip


def overwritten_files(case: Case) -> Iterator[Finding]:
    """A name is missing that the installed release has, and the fork that would lack it is there, or may be."""
    for fork in FORKS:
        missing = re.search(rf"cannot import name '({fork.lacks})' from '{fork.module}[.\w]*'", case.error)
        installed, own = case.version(fork.over), case.version(fork.name)
        gone = own is None and case.environment.complete
        if missing is None or gone or (installed and versions.within(fork.since, installed) is False):
            continue
        again = shlex.quote(f"{fork.over}=={installed}") if installed else fork.over
        yield Finding(
            rule="overwritten",
            title=f"files of {fork.over} are those of {fork.name}, which brings the same module",
            packages=case.versions(fork.name, fork.over),
            severity="crash",
            confidence="likely" if own else "possible",
            evidence=[f"the error says: {missing.group()}", f"{fork.over} {installed or ''} has {missing[1]}"],
            remedy=[f"uninstall {fork.name}, and install {fork.over} again: one of them alone"],
            commands=[
                f"uv pip uninstall {fork.name}",
                f"uv pip install --reinstall-package {fork.over} {again}",
            ],
            decide=[] if own else [f"whether {fork.name} is installed, or was before {fork.over}"],
            links=[fork.link],
            shown=EXPLAINS if own or installed else POINTS,
            weight=0.8,
        )
