"""Files that are no certificates: what is wrong with each, and what to do."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from builder.base import errors, text
from builder.base.text import word


def unreadable(path: Path, error: Exception) -> errors.BadInputError:
    """The refusal of a file that is no certificate."""
    return errors.BadInputError(
        f"{path} is not a certificate: {text.line(why(error), 300)}",
        cause="the file was edited or cut short",
        next_step=f"git checkout {word(path)}, or move it away if git does not have it; then certify again",
    )


def why(error: Exception) -> str:
    """Why a file is no certificate, in one line: the first fault, and where it is."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return str(error).splitlines()[0]


def misnamed(path: Path) -> errors.BadInputError:
    """The refusal of a file with a name that no certificate has."""
    return errors.BadInputError(
        f"{text.line(str(path))} is not named as a certificate is, such as cpu-docker.json",
        cause="an editor, a merge or somebody else put it there",
        next_step=f"ls {word(path.parent)}, then remove it or give it such a name",
    )


def misplaced(where: str) -> errors.BadInputError:
    """The refusal of a report in the place of a certificate."""
    return errors.BadInputError(
        f"{where} is a report: what ran was not exactly the lock",
        cause="a report of a bundle was copied here",
        next_step=f"git rm {word(where)}, or move it away",
    )
