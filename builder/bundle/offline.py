"""On a host without a network: install what a bundle carries, run the suite, and compare the environment with the lock.

The entry script (unbundle/) has checked and unpacked the bundle before any of this runs. Files of the host stand in for
those that the bundle leaves out only where they are the same; no file of the host is ever written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import process, sources
from builder.base.project import Project, sha256_file, write
from builder.bundle import hollow, inside, present
from builder.bundle.contents import DEBS, WHEELS, CarriedFile, Contents
from builder.bundle.unbundle.work import RESULTS
from builder.certify import certify, compiler, hostenv, judgement
from builder.certify.certificate import Differences
from builder.certify.certify import Certification, Options
from builder.certify.transcript import Event
from builder.image.buildx import BuildStep
from builder.lock.lockfile import Entry, Lock

ENGINE = "host"
CERTIFICATE, REPORT = "certificate.json", "report.json"
SCRIPT = Path(__file__).parent / "scripts" / "installed_distributions.py"


@dataclass(frozen=True)
class Host:
    """What a host gives: the interpreter to install for (its own, or the stack's), and folders with its files."""

    python: Path
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Installed:
    """A distribution of the environment."""

    name: str
    version: str


def run(
    project: Project,
    lock: Lock,
    contents: Contents,
    request: Options,
    host: Host,
    scratch: Path,
    on_step: Callable[[BuildStep], None],
    on_event: Callable[[Event], None],
) -> Certification:
    """Install or put together, run the suite, and write the certificate or the report."""

    def report(what: str) -> None:
        on_step(BuildStep(0, 0, what))

    root = scratch / "suite"
    identity = sources.copy(project.smoke, root)
    if contents.image:
        tree = inside.prepare(project, contents.image, host.folders, scratch, report)
        subject, different = inside.subject(contents.image, tree, root, lock, request.device), None
    else:
        environment = prepare(project, lock, contents, host, scratch, report)
        if request.device == "cuda":
            compiler.require(lock, environment)
        report("comparing what is installed with the lock")
        different = differences(lock, contents, *installed(environment))
        subject = certify.on_host(lock, environment, root, scratch)
    subject = dataclasses.replace(subject, engine={**subject.engine, "bundle": contents.digest})
    report("running the suite")
    statement = certify.examine(lock, request, subject, identity, scratch, on_event, different)
    doubts = certify.doubts_about(statement, judgement.terms(project, lock, root / "smoke"), subject)
    earned = statement.predicate.issued is not None and not doubts
    results = project.state / RESULTS
    target, other = results / CERTIFICATE, results / REPORT
    if not earned:
        target, other = other, target
    other.unlink(missing_ok=True)  # of an earlier run
    write(target, (statement if earned else statement.undated()).to_json(), scratch)
    return Certification(statement, target if earned else None, None if earned else target, reused=False, doubts=doubts)


def prepare(
    project: Project, lock: Lock, contents: Contents, host: Host, scratch: Path, report: Callable[[str], None]
) -> Path:
    """The environment of a bundle on this host; built in `scratch` and renamed when it is whole, if it is not there.

    Raises BadInputError when the host lacks what the bundle leaves out.
    """
    final = project.state / "host" / f"{lock.name}-{contents.digest.removeprefix('sha256:')[:12]}"
    what = f"environment of a bundle {contents.digest}"
    if hostenv.is_kept(final, what, report):
        return final
    files = _whole(project, contents, host, scratch, report)
    for deb in (project.root / DEBS).glob("*.deb"):
        write(project.state / DEBS / deb.name, deb.read_bytes(), scratch)
    fitted = dataclasses.replace(
        lock,
        stack=lock.stack.model_copy(update={"python": contents.python}),
        python=tuple(files),
        build=_entries(contents.build),
    )
    environment = scratch / "host"
    files |= dict(zip(fitted.build, (project.root / WHEELS / file.file for file in contents.build), strict=True))
    hostenv.install(fitted, environment, scratch, report, files, str(host.python))
    hostenv.finish(project, fitted, environment, final, scratch, report, what)
    return final


def _entries(files: Sequence[CarriedFile]) -> tuple[Entry, ...]:
    return tuple(Entry(file.name, file.version, file.sha256) for file in files)


def _whole(
    project: Project, contents: Contents, host: Host, scratch: Path, report: Callable[[str], None]
) -> dict[Entry, Path]:
    """The file of every distribution. A hollow wheel is filled with the host's files, and has a sha256 of its own."""
    lacking = {
        file: hollow.absent_files(project.root / WHEELS / file.file, file.record or "") for file in contents.hollow
    }
    paths = present.need(host.folders, {file.name: sizes for file, sizes in lacking.items()}, report)
    folder = scratch / "filled"
    folder.mkdir()
    files = {}
    for number, file in enumerate(contents.distributions, start=1):
        path = project.root / WHEELS / file.file
        entry = Entry(file.name, file.version, file.sha256)
        if file.record:
            report(f"filling {number} of {len(contents.distributions)}: {file.name}")
            hollow.fill(path, file.record, paths, folder / file.file)
            path = folder / file.file
            entry = dataclasses.replace(entry, sha256=sha256_file(path).removeprefix("sha256:"))
        files[entry] = path
    return files


def installed(environment: Path) -> tuple[str, list[Installed]]:
    """The Python version of an environment and every distribution that is installed in it."""
    argv = [str(environment / "bin" / "python"), "-E", str(SCRIPT)]
    version, distributions = json.loads(process.check("listing what is installed", argv).stdout)
    return version, [Installed(*entry) for entry in distributions]


def differences(lock: Lock, contents: Contents, python: str, distributions: Sequence[Installed]) -> Differences:
    """Everything in which an environment is not exactly the lock; empty when it is."""
    different: dict[str, str | list[str]] = {}
    if python.split(".")[:2] != lock.stack.python.split("."):
        different["python"] = f"{python}, not {lock.stack.python}"
    versions: dict[str, list[str]] = {}
    for distribution in distributions:
        versions.setdefault(distribution.name, []).append(distribution.version)
    wrong = [
        f"{name} {' and '.join(versions[name])}, not {version}" if name in versions else f"{name} missing: {version}"
        for name, version in sorted(lock.versions.items())
        if versions.get(name) != [version]
    ]
    wrong += [
        f"{name} {' and '.join(versions[name])}, not in the lock" for name in sorted(versions.keys() - lock.versions)
    ]
    if wrong:
        different["distributions"] = wrong
    locked = {entry.name: entry.sha256 for entry in lock.python}
    if other := sorted(file.name for file in contents.distributions if locked.get(file.name) != file.sha256):
        different["files not of the lock"] = other
    return different


def summary(different: Mapping[str, str | int | list[str] | None]) -> list[str]:
    """The differences in lines for people: long lists are cut; the statement has them whole."""
    lines = []
    for what, value in different.items():
        shown = [str(entry) for entry in value] if isinstance(value, list) else [str(value)]
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        lines.append(f"{what}: {'; '.join(shown[:8])}{more}")
    return lines
