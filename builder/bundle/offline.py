"""On a host without a network: install what a bundle carries, run the suite, and compare the environment with the lock.

The entry script (unbundle.py) has checked and unpacked the bundle before any of this runs. Of the host's own packages
the environment sees only those that the bundle leaves out, as links: other packages would disturb the suite, and no
file of the host is ever written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process, sources
from builder.base.project import Project, sha256, write
from builder.bundle import host
from builder.bundle.contents import DEBS, WHEELS, CarriedFile, Contents
from builder.certify import certify, hostenv, judgement
from builder.certify.certificate import Differences
from builder.certify.certify import Certification, Options
from builder.certify.transcript import Event
from builder.image.buildx import Step
from builder.lock.lockfile import Entry, Lock

ENGINE = "host"
SCRIPT = Path(__file__).parent / "scripts" / "installed_distributions.py"


@dataclass(frozen=True)
class Installed:
    """A distribution of the environment; `of_host` when its files are the host's own."""

    name: str
    version: str
    of_host: bool


def run(
    project: Project,
    lock: Lock,
    contents: Contents,
    request: Options,
    python: Path,
    scratch: Path,
    on_step: Callable[[Step], None],
    on_event: Callable[[Event], None],
) -> Certification:
    """Install, run the suite, and write the certificate or the report.

    `python` is the host's interpreter, whose packages stand in for those that the bundle leaves out.
    """
    environment = prepare(project, lock, contents, python, scratch, lambda what: on_step(Step(0, 0, what)))
    on_step(Step(0, 0, "comparing what is installed with the lock"))
    version, distributions = installed(environment)
    different = differences(lock, contents, version, distributions)
    root = scratch / "suite"
    identity = sources.copy(project.smoke, root)
    subject = certify.on_host(lock, environment, root, scratch)
    subject = dataclasses.replace(subject, engine={**subject.engine, "bundle": contents.digest})
    statement = certify.examine(lock, request, subject, identity, scratch, on_event, different)
    doubts = certify.doubts_about(statement, judgement.terms(project, lock, root / "smoke"), subject)
    earned = statement.predicate.issued is not None and not doubts
    target = project.state / ("certificates" if earned else "reports") / f"{request.device}-{ENGINE}.json"
    write(target, (statement if earned else statement.undated()).to_json(), scratch)
    return Certification(statement, target if earned else None, None if earned else target, reused=False, doubts=doubts)


def prepare(
    project: Project, lock: Lock, contents: Contents, python: Path, scratch: Path, report: Callable[[str], None]
) -> Path:
    """The environment of a bundle on this host; built in `scratch` and renamed when it is whole, if it is not there.

    Raises BadInputError when the host lacks what the bundle leaves out.
    """
    linked = host.distributions(python, contents.left_out) if contents.left_out else []
    identity = sha256(json.dumps([contents.digest, str(python), [entry.identity for entry in linked]]).encode())
    final = project.state / "host" / f"{lock.name}-{identity.removeprefix('sha256:')[:12]}"
    what = f"environment of a bundle {identity}"
    if hostenv.is_kept(final, what, report):
        return final
    usable = {distribution.name for distribution in linked if distribution.files is not None}
    if lacking := [name for name in contents.left_out if name not in usable]:
        raise errors.BadInputError(
            f"the bundle leaves out what this host does not have: {', '.join(lacking)}",
            cause="the freeze is of another Python, or names packages of the system, whose files are not listed",
            next_step="make the bundle again, with a --have that does not name them",
        )
    for deb in (project.root / DEBS).glob("*.deb"):
        write(project.state / DEBS / deb.name, deb.read_bytes(), scratch)
    fitted = dataclasses.replace(
        lock,
        stack=lock.stack.model_copy(update={"python": contents.python}),
        python=_entries(contents.distributions),
        build=_entries(contents.build),
    )
    environment = scratch / "host"
    carried = [*contents.distributions, *contents.build]
    files = dict(zip(_entries(carried), (project.root / WHEELS / file.file for file in carried), strict=True))
    hostenv.install(fitted, environment, scratch, report, files, str(python))
    if linked:
        report(f"linking {len(linked)} distributions of the host")
    for distribution in linked:
        host.link(distribution, environment, environment / fitted.site_packages)
    hostenv.finish(project, fitted, environment, final, scratch, report, what)
    return final


def _entries(files: Sequence[CarriedFile]) -> tuple[Entry, ...]:
    return tuple(Entry(file.name, file.version, file.sha256) for file in files)


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
    if own := sorted(f"{entry.name} {entry.version}" for entry in distributions if entry.of_host):
        different["files of the host"] = own
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
