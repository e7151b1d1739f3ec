"""Ranges in findings: what is outside one, and the command that installs one."""

from __future__ import annotations

import shlex

from doctor.base import versions

OPPOSITES = {">=": "<", ">": "<=", "<=": ">", "<": ">=", "==": "!=", "!=": "==", "~=": "<"}


def install(requirement: str) -> str:
    """The command for a requirement, quoted: its range may be a stranger's, and after "===" any letter may stand."""
    quoted = shlex.quote(requirement)
    return f"uv pip install {quoted if quoted != requirement else repr(requirement)}"


def outside(allowed: str) -> list[str]:
    """The ranges outside a range."""
    clauses = versions.specifiers(allowed) or ()
    return [OPPOSITES[clause.operator] + clause.version for clause in clauses if clause.operator in OPPOSITES]
