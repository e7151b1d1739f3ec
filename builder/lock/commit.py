"""A commit of a git repository as a source archive: the same bytes on every machine, and whoever packs it.

The archive lies in `sources/` beside stack.toml and is locked by its hash, like any file of an index. So the repository
is needed once.
"""

from __future__ import annotations

import io
import re
import struct
import tarfile
import tomllib
import zlib
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from builder.base import errors, machine, process, tarball
from builder.base.text import word
from builder.lock.requirements import Commit

STORED = 0xFFFF  # bytes of a stored block of deflate
QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
FETCH = "git-fetch"  # it gets the user's ways to log in
DENIED = re.compile(r"could not read Username|Authentication failed|Permission denied|terminal prompts disabled|40[13]")


def archive(commit: Commit, folder: Path, scratch: Path) -> Path:
    """Fetch a commit, and write its archive NAME-VERSION.tar.gz into a folder. Raises BadInputError, NetworkError."""
    repository = scratch / f"git-{commit.name}"
    _git("init", "--quiet", "--bare", str(repository))
    _fetch(repository, commit)
    # Whatever the tree's own attributes say: every file, as it is.
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info" / "attributes").write_text("* -export-ignore -export-subst -text -eol -ident -filter\n")
    tree = _git("-C", str(repository), "ls-tree", "-r", commit.id).stdout
    if modules := [line.partition("\t")[2] for line in tree.splitlines() if line.startswith("160000")]:
        raise errors.BadInputError(
            f"{commit.name}: the commit has submodules ({', '.join(modules)}), which are other repositories",
            next_step="build a wheel with `uv build`, and name the file",
        )
    packed = scratch / f"{commit.name}.tar"
    _git("-C", str(repository), "archive", "--format=tar", f"--output={packed}", commit.id)
    version = _version(commit, packed, scratch)
    stem = f"{commit.name.replace('-', '_')}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}.tar.gz"
    target.write_bytes(gzip(_repacked(packed, stem, commit.name, version)))
    return target


def _fetch(repository: Path, commit: Commit) -> None:
    at = ("-C", str(repository), "fetch", "--quiet", "--no-tags")
    result = process.run(["git", *at, "--depth=1", commit.url, commit.id], env=QUIET, tool=FETCH)
    if result.returncode != 0:  # some hosts give whole branches only
        result = process.run(["git", *at, commit.url, "+refs/*:refs/all/*"], env=QUIET, tool=FETCH)
    if result.returncode != 0:
        denied = DENIED.search(result.stderr) is not None
        raise errors.NetworkError(
            f"{commit.name}: the repository did not {'let you in' if denied else 'answer'}",
            cause="a private repository, and git finds no credentials for it"
            if denied
            else "no route, or no such host",
            next_step="git ls-remote with its address; credentials go into ~/.netrc or git's credential helper",
        )
    if process.run(["git", "-C", str(repository), "cat-file", "-e", f"{commit.id}^{{commit}}"]).returncode != 0:
        raise errors.BadInputError(
            f"{commit.name}: its repository has no commit {commit.id}",
            cause="the commit was never pushed, or a rebase removed it",
            next_step="git push, or name another commit",
        )


def _git(*argv: str) -> process.Result:
    return process.check(f"git {argv[-1] if argv[0] == '-C' else argv[0]}", ["git", *argv], env=QUIET)


def _version(commit: Commit, packed: Path, scratch: Path) -> str:
    """The version that the project declares; where a program makes it, that of a source distribution."""
    project = _declared(packed)
    name, version = project.get("name"), project.get("version")
    if not (isinstance(name, str) and isinstance(version, str)):
        name, version = _built(commit, packed, scratch)
    if canonicalize_name(name) != commit.name:
        raise errors.BadInputError(
            f"{commit.name}: the project at this commit is {name}", next_step=f"write {word(name)} @ git+… in that line"
        )
    if not _is_version(version):
        raise errors.BadInputError(
            f"{commit.name}: the project at this commit calls itself {version[:80]!r}, which is no version",
            next_step="name another commit",
        )
    return version


def _is_version(text: str) -> bool:
    """The archive and its folder are named after it."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return text == text.strip()


def _declared(packed: Path) -> dict[str, object]:
    with tarfile.open(packed) as tree:
        try:
            content = tree.extractfile("pyproject.toml")
            project = tomllib.loads(content.read().decode()).get("project", {}) if content else {}
        except (KeyError, ValueError):
            return {}
    return project if isinstance(project, dict) else {}


def _built(commit: Commit, packed: Path, scratch: Path) -> tuple[str, str]:
    source, out = scratch / f"tree-{commit.name}", scratch / f"sdist-{commit.name}"
    tarball.unpack(packed, source)
    argv = [machine.uv_binary(), "build", "--quiet", "--sdist", "--out-dir", str(out), str(source)]
    result = process.run(argv, env=machine.uv_environment(), cwd=scratch)
    files = list(out.glob("*.tar.gz"))
    if result.returncode != 0 or len(files) != 1:
        raise errors.BadInputError(
            f"{commit.name}: its version cannot be found without the repository's history\n"
            + "\n".join(result.output.strip().splitlines()[-6:]),
            cause="its build needs tags of git, or tools that the index does not have",
            next_step="build a wheel with `uv build`, and name the file",
        )
    name, version = parse_sdist_filename(files[0].name)
    return name, str(version)


def _repacked(packed: Path, stem: str, name: str, version: str) -> bytes:
    """The tree below one folder, in order, without times and owners; and what says the version to tools like git's."""
    buffer = io.BytesIO()
    with tarfile.open(packed) as tree, tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        members = {member.name: member for member in tree if not member.isdir()}
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        for path in sorted({*members, "PKG-INFO"}):
            member = members.get(path)
            header = tarfile.TarInfo(f"{stem}/{path}")
            header.mode = 0o755 if member and member.mode & 0o100 else 0o644
            if member and member.issym():
                header.type, header.linkname = tarfile.SYMTYPE, member.linkname
                archive.addfile(header)
                continue
            content = tree.extractfile(member) if member else None
            data = content.read() if content else text
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def gzip(data: bytes) -> bytes:
    """A gzip file whose blocks are stored as they are: what compresses may write other bytes in its next version."""
    parts = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"]
    for start in range(0, len(data) or 1, STORED):
        block = data[start : start + STORED]
        parts.append(struct.pack("<BHH", start + STORED >= len(data), len(block), len(block) ^ 0xFFFF) + block)
    return b"".join([*parts, struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)])
