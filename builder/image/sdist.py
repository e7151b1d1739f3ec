"""Building wheels from locked source distributions. Their code is foreign, so it gets no network and no secrets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.base import errors, machine, process
from builder.base.project import sha256_file
from builder.image import render
from builder.lock import archives, lockfile
from builder.lock.lockfile import Entry, Lock

FOREIGN = "setup.py"  # uv gets the environment variables of this program, because it passes them on


def build(
    sources: Mapping[Entry, Path],
    tools: Mapping[Entry, Path],
    environment: Path,
    scratch: Path,
    report: Callable[[str], None],
    lock: Lock | None = None,
) -> dict[Entry, Path]:
    """Build the wheels of source distributions with locked tools, for the Python of an environment."""
    refuse(sources, lock)
    constraints = scratch / "build.txt"
    constraints.write_text(lockfile.format_python(tools))
    links = archives.gather(tools.values(), scratch / "tools")
    alone = _without_network(report)
    built: dict[Entry, Path] = {}
    for entry, file in sources.items():
        report(f"building {entry.name}")
        out = scratch / "built" / entry.name
        # One hash seed, as in the image: setuptools writes sets into METADATA.
        env = {**machine.uv_offline(), "PYTHONHASHSEED": "0"}
        argv = [
            *alone, machine.uv_binary(), "build", "--quiet", "--wheel", "--python", str(environment / "bin" / "python"),
            "--offline", "--no-index", "--find-links", str(links),
            "--build-constraints", str(constraints), "--require-hashes",
            "--cache-dir", str(scratch / "uv-build"), "--out-dir", str(out), str(file),
        ]  # fmt: skip
        process.check(
            f"building {entry.name}", argv, env=env, cwd=scratch, next_step="vetted lock --check", tool=FOREIGN
        )
        built[entry] = _wheel(entry, out)
    return built


def refuse(sources: Mapping[Entry, Path], lock: Lock | None = None) -> None:
    """Raise unless every distribution is known to have no wheel, and its file is the locked one.

    An extension may have source distributions of its own.
    """
    known = (*render.GROUPS[render.SOURCE], *(lock.own.source if lock else ()))
    for entry, file in sources.items():
        if entry.name not in known:
            raise errors.BadInputError(
                f"{entry.pin}: {file.name} is no wheel, and nothing else is built from source",
                next_step="lock a version that has a wheel",
            )
        if (got := sha256_file(file)) != f"sha256:{entry.sha256}":
            raise errors.NetworkError(
                f"{entry.name}: the file is not the locked one\nexpected sha256:{entry.sha256}\ngot      {got}",
                next_step="git diff lockfiles/, then `vetted lock --check`",
            )


def _wheel(entry: Entry, out: Path) -> Path:
    for path in out.glob("*.whl"):
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if (name, str(version)) == (lockfile.normalise(entry.name), entry.version):
            return path
    raise errors.BadInputError(
        f"building {entry.name} left no wheel of {entry.version}", next_step="choose another version in stack.toml"
    )


def _without_network(report: Callable[[str], None]) -> list[str]:
    """The prefix that runs a command without a network. It needs root, or a machine that allows user namespaces."""
    options = ["--net"] if os.geteuid() == 0 else ["--user", "--map-current-user", "--net"]
    alone = ["unshare", *options, "--"]
    if shutil.which("unshare") and process.run([*alone, "true"]).returncode == 0:
        return alone
    report("this machine allows no network namespace: source distributions are built with the network")
    return []
