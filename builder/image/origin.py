"""Where a build came from: the commit of the project, and the tools that took part, by digest.

It is written down when an image is built, because another commit may be checked out when it is published. None of it
enters the image, and what cannot be found out is left out.
"""

from __future__ import annotations

import re
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packageurl import PackageURL
from pydantic import BaseModel, ConfigDict, Field

from builder.base import errors, machine, process
from builder.base.project import Project, sha256_file

PATIENCE = 30.0  # seconds for git, which reads the whole tree
# What an image is made of, and what makes it. Certificates and documents are written after it was built.
SOURCES = ("builder", "images", "lockfiles", "runtime", "requirements.txt", ":(exclude)lockfiles/*/certificates/*")
DIGEST = r"^sha256:[0-9a-f]{64}$"


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    uri: str | None = None
    digest: str = Field(pattern=DIGEST)


class Origin(BaseModel):
    """`commit` is None where there is no git, or no commit; `dirty`: the sources had changes on top of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    commit: str | None = Field(default=None, pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")
    dirty: bool = False
    tools: tuple[Tool, ...] = ()


def of(project: Project, stack: str) -> Origin:
    """The origin of an image of this stack that is built now. No commit of the project has a stack of the user's."""
    commit, dirty = _commit(project.root)
    return Origin(commit=commit, dirty=dirty or (commit is not None and project.owns(stack)), tools=tuple(_tools()))


def _commit(root: Path) -> tuple[str | None, bool]:
    commit = _git(root, "rev-parse", "--verify", "HEAD^{commit}")
    if commit is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit.strip()):
        return None, False
    changes = _git(root, "status", "--porcelain", "--untracked-files=normal", "--", *SOURCES)
    return commit.strip(), changes is None or bool(changes.strip())


def _git(root: Path, *argv: str) -> str | None:
    """What git prints; None when it cannot say."""
    # A clone that belongs to another user, as in a container, is the project all the same; a repository in some folder
    # above it is git's to judge. No program that the repository configures is started.
    own = ["-c", f"safe.directory={root.resolve()}"] if (root / ".git").exists() else []
    quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    env = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        result = process.run(["git", *own, *quiet, *argv], env=env, cwd=root, timeout=PATIENCE)
    except (errors.VettedError, OSError):
        return None
    return result.stdout if result.returncode == 0 else None


def _tools() -> list[Tool]:
    found = []
    try:
        uv = PackageURL("pypi", None, "uv", version("uv")).to_string()
        found.append(Tool(name="uv", uri=uv, digest=sha256_file(Path(machine.uv_binary()))))
    except (OSError, PackageNotFoundError):
        pass
    if (program := shutil.which("mmdebstrap")) and (said := _version(program)):
        uri = PackageURL("generic", None, "mmdebstrap", said).to_string()
        found.append(Tool(name="mmdebstrap", uri=uri, digest=sha256_file(Path(program))))
    requirements = Path(__file__).parents[2] / "requirements.txt"
    if requirements.is_file():  # not there where the tool was installed as a package
        found.append(Tool(name="requirements.txt", digest=sha256_file(requirements)))
    return found


def _version(program: str) -> str | None:
    try:
        said = process.run([program, "--version"], timeout=PATIENCE).stdout
    except (errors.VettedError, OSError):
        return None
    match = re.search(r"\b[0-9]+(?:\.[0-9]+)+\b", said)
    return match[0] if match else None
