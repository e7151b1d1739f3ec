"""Ranges in findings: what is outside one, and the command that installs one."""

from __future__ import annotations

import shlex

from doctor.base import versions

OPPOSITES = {">=": "<", ">": "<=", "<=": ">", "<": ">=", "==": "!=", "!=": "==", "~=": "<"}


def install(*requirements: str) -> str:
    """The command for requirements, quoted: a range may be a stranger's, and after "===" any letter may stand."""
    words = (repr(line) if shlex.quote(line) == line else shlex.quote(line) for line in requirements)
    return f"uv pip install {' '.join(words)}"


def outside(allowed: str) -> list[str]:
    """The ranges outside a range."""
    clauses = versions.specifiers(allowed) or ()
    return [OPPOSITES[clause.operator] + clause.version for clause in clauses if clause.operator in OPPOSITES]
