"""Where a build came from: the commit of the project, and the tools that took part, by digest.

It is recorded when an image is built, because another commit may be checked out when the image is published. None of it
is in the image, and what cannot be determined is omitted.
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
# The sources of an image and of the tool that builds it. Certificates and documents are written after the build.
SOURCES = (
    "builder", "images", "lockfiles", "runtime", "requirements.txt",
    ":(exclude)lockfiles/*/certificates/*", ":(exclude)lockfiles/*/trajectories/*",
)  # fmt: skip
DIGEST = r"^sha256:[0-9a-f]{64}$"


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    uri: str | None = None
    digest: str = Field(pattern=DIGEST)


class Origin(BaseModel):
    """`commit` is None without git or without a commit; `dirty`: the sources had uncommitted changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    commit: str | None = Field(default=None, pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")
    dirty: bool = False
    tools: tuple[Tool, ...] = ()


def of(project: Project, stack: str) -> Origin:
    """The origin of a build of this stack that runs now. No commit of the project has a stack of the user's own."""
    commit, dirty = _commit(project.root)
    return Origin(commit=commit, dirty=dirty or (commit is not None and project.owns(stack)), tools=tuple(_tools()))


def _commit(root: Path) -> tuple[str | None, bool]:
    commit = _git(root, "rev-parse", "--verify", "HEAD^{commit}")
    if commit is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit.strip()):
        return None, False
    changes = _git(root, "status", "--porcelain", "--untracked-files=normal", "--", *SOURCES)
    return commit.strip(), changes is None or bool(changes.strip())


def _git(root: Path, *argv: str) -> str | None:
    """What git prints; None if it fails."""
    # A clone may belong to another user, as in a container: that is fine here, but not for a repository in a folder
    # above. Programs that the repository configures are not started.
    own = ["-c", f"safe.directory={root.resolve()}"] if (root / ".git").exists() else []
    quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    env = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        result = process.run(["git", *own, *quiet, *argv], env=env, cwd=root, timeout=PATIENCE)
    except (errors.VettedError, OSError):
        return None
    return result.stdout if result.returncode == 0 else None


def _tools() -> list[Tool]:
    tools = []
    try:
        uv = PackageURL("pypi", None, "uv", version("uv")).to_string()
        tools.append(Tool(name="uv", uri=uv, digest=sha256_file(Path(machine.uv_binary()))))
    except (OSError, PackageNotFoundError):
        pass
    if (program := shutil.which("mmdebstrap")) and (installed := _version(program)):
        uri = PackageURL("generic", None, "mmdebstrap", installed).to_string()
        tools.append(Tool(name="mmdebstrap", uri=uri, digest=sha256_file(Path(program))))
    requirements = Path(__file__).parents[2] / "requirements.txt"
    if requirements.is_file():  # not there where the tool was installed as a package
        tools.append(Tool(name="requirements.txt", digest=sha256_file(requirements)))
    return tools


def _version(program: str) -> str | None:
    try:
        output = process.run([program, "--version"], timeout=PATIENCE).stdout
    except (errors.VettedError, OSError):
        return None
    match = re.search(r"\b[0-9]+(?:\.[0-9]+)+\b", output)
    return match[0] if match else None
