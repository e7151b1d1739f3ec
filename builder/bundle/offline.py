"""What a bundle holds, and what becomes of it on a host without a network: installed, run, compared with the lock.

The entry script (unbundle.py) has checked and unpacked it before any of this runs. Of the host's own packages the
environment sees exactly those that the bundle leaves out, as links: others would be in the suite's way, and none
of them is ever written to.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from builder.base import errors, process, reading, sources
from builder.base.project import Project, sha256, write
from builder.base.tomlfile import Table
from builder.certify import certify, hostenv, judgement
from builder.certify.certificate import Differences, Digest
from builder.certify.certify import Outcome, Request
from builder.certify.suite import Event
from builder.image.buildx import Step
from builder.lock import lockfile
from builder.lock.lockfile import Entry, Lock

CONTENTS = "bundle.json"
WHEELS = "wheels"
DEBS = "debs"
ENGINE = "host"


class Carried(Table):
    """One file of a distribution. For the stack's own Python it is the locked one."""

    name: str
    version: str
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+!-]+$")]
    sha256: Digest


class Contents(Table):
    """bundle.json: `left_out` are distributions that the host is said to have at the locked version."""

    stack: str
    lock: str
    suite: str
    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    distributions: list[Carried]
    build: list[Carried]
    left_out: list[str]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(), indent=1) + "\n"

    @property
    def digest(self) -> str:
        return sha256(self.to_json().encode())


@dataclass(frozen=True)
class Installed:
    """A distribution of the environment; `of_host` when its files are the host's own."""

    name: str
    version: str
    of_host: bool


@dataclass(frozen=True)
class Found:
    """A distribution that the host has. `files` is None where it keeps no list of them; they are below `folder`."""

    name: str
    version: str
    folder: Path
    files: tuple[str, ...] | None


def read(project: Project) -> tuple[Lock, Contents]:
    """The lock and the contents of an unpacked bundle. Raises BadInputError when they do not belong together."""
    again = "unpack the bundle anew, into another --to"
    try:
        contents = Contents.model_validate_json(reading.content(project.root / CONTENTS, CONTENTS, again))
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{project.root} is no unpacked bundle", next_step="python3 run.py") from error
    except (ValidationError, RecursionError) as error:
        raise errors.BadInputError(
            f"{CONTENTS}: {str(error).splitlines()[0]}", cause="another version of Vetted made it", next_step=again
        ) from error
    lock = lockfile.load(project, contents.stack)
    for what, said, is_ in (
        ("lock", contents.lock, lock.digest),
        ("suite", contents.suite, sources.digest(project.smoke)),
    ):
        if said != is_:
            raise errors.BadInputError(
                f"the {what} is not the one that was bundled\nexpected {said}\ngot      {is_}",
                cause="an unpacked file was edited",
                next_step=again,
            )
    return lock, contents


def run(
    project: Project,
    lock: Lock,
    contents: Contents,
    request: Request,
    host: Path,
    scratch: Path,
    on_step: Callable[[Step], None],
    on_event: Callable[[Event], None],
) -> Outcome:
    """Install, run the suite, and write the certificate or the report.

    `host` is the interpreter whose packages stand in for those that the bundle leaves out.
    """
    environment = prepare(project, lock, contents, host, scratch, lambda what: on_step(Step(0, 0, what)))
    on_step(Step(0, 0, "comparing what is installed with the lock"))
    python, found = installed(environment)
    different = differences(lock, contents, python, found)
    root = scratch / "suite"
    identity = sources.copy(project.smoke, root)
    subject = certify.on_host(lock, environment, root, scratch)
    subject = dataclasses.replace(subject, engine={**subject.engine, "bundle": contents.digest})
    statement = certify.examine(lock, request, subject, identity, scratch, on_event, different)
    doubts = certify.against(statement, judgement.terms(project, lock, root / "smoke"), subject)
    earned = statement.predicate.issued is not None and not doubts
    where = project.state / ("certificates" if earned else "reports") / f"{request.device}-{ENGINE}.json"
    write(where, (statement if earned else statement.undated()).to_json(), scratch)
    return Outcome(statement, where if earned else None, None if earned else where, reused=False, doubts=doubts)


def prepare(
    project: Project, lock: Lock, contents: Contents, host: Path, scratch: Path, report: Callable[[str], None]
) -> Path:
    """The environment of a bundle on this host, made when it is not there yet: aside, and renamed when it is whole."""
    present = of_host(host, contents.left_out) if contents.left_out else []
    identity = sha256(json.dumps([contents.digest, str(host), [_identity(one) for one in present]]).encode())
    final = project.state / "host" / f"{lock.name}-{identity.removeprefix('sha256:')[:12]}"
    what = f"environment of a bundle {identity}"
    if hostenv.is_kept(final, what, report):
        return final
    usable = {one.name for one in present if one.files is not None}
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
    made = scratch / "host"
    carried = [*contents.distributions, *contents.build]
    files = dict(zip(_entries(carried), (project.root / WHEELS / one.file for one in carried), strict=True))
    hostenv.install(fitted, made, scratch, report, files, str(host))
    if present:
        report(f"linking {len(present)} distributions of the host")
    for one in present:
        link(one, made, made / fitted.site_packages)
    hostenv.finish(project, fitted, made, final, scratch, report, what)
    return final


def _entries(carried: Sequence[Carried]) -> tuple[Entry, ...]:
    return tuple(Entry(one.name, one.version, one.sha256) for one in carried)


def _identity(found: Found) -> list[str]:
    return [found.name, found.version, str(found.folder)]


# Run by the host's interpreter, so the standard library only. The folder that it is started in is no place of packages.
_LIST = """
import json, os, re, sys
from importlib.metadata import distributions
found = {}
for one in distributions(path=sys.path[1:]):
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
    if name not in sys.argv[1:] or name in found:
        continue
    files = one.files if one.read_text("RECORD") else None
    found[name] = [name, one.version, str(one.locate_file("")), files and [str(file) for file in files]]
print(json.dumps(sorted(found.values())))
"""


def of_host(host: Path, names: Sequence[str]) -> list[Found]:
    """Those of these distributions that the host has, at whatever version."""
    result = process.check("listing the host's packages", [str(host), "-E", "-c", _LIST, *names])
    return [
        Found(name, version, Path(folder), tuple(files) if files is not None else None)
        for name, version, folder, files in json.loads(result.stdout)
    ]


def link(found: Found, made: Path, site_packages: Path) -> None:
    """Link the files of a distribution of the host into an environment; what is there already stays."""
    for file in found.files or ():
        source = Path(os.path.normpath(found.folder / file))
        inside = Path(os.path.normpath(file))
        if inside.is_absolute() or not source.is_file():
            continue
        if ".." not in inside.parts:
            target = site_packages / inside
        elif source.parent.name == "bin" and not _is_script(source):
            target = made / "bin" / source.name  # a program; a script would start the host's interpreter
        else:
            continue
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


_INSTALLED = """
import json, platform, re, sys
from importlib.metadata import distributions
from pathlib import Path
found = []
for one in distributions(path=sys.path[1:]):
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
    found.append([name, one.version, (Path(one._path) / "METADATA").is_symlink()])
print(json.dumps([platform.python_version(), sorted(found)]))
"""


def installed(environment: Path) -> tuple[str, list[Installed]]:
    """The Python version of an environment and every distribution that is installed in it."""
    argv = [str(environment / "bin" / "python"), "-E", "-c", _INSTALLED]
    python, found = json.loads(process.check("listing what is installed", argv).stdout)
    return python, [Installed(*one) for one in found]


def differences(lock: Lock, contents: Contents, python: str, found: Sequence[Installed]) -> Differences:
    """Everything in which an environment is not exactly the lock; empty when it is."""
    said: dict[str, str | list[str]] = {}
    if python.split(".")[:2] != lock.stack.python.split("."):
        said["python"] = f"{python}, not {lock.stack.python}"
    versions: dict[str, list[str]] = {}
    for one in found:
        versions.setdefault(one.name, []).append(one.version)
    wrong = [
        f"{name} {' and '.join(versions[name])}, not {version}" if name in versions else f"{name} missing: {version}"
        for name, version in sorted(lock.versions.items())
        if versions.get(name) != [version]
    ]
    wrong += [
        f"{name} {' and '.join(versions[name])}, not in the lock" for name in sorted(versions.keys() - lock.versions)
    ]
    if wrong:
        said["distributions"] = wrong
    if own := sorted(f"{one.name} {one.version}" for one in found if one.of_host):
        said["files of the host"] = own
    locked = {entry.name: entry.sha256 for entry in lock.python}
    if other := sorted(one.name for one in contents.distributions if locked.get(one.name) != one.sha256):
        said["files not of the lock"] = other
    return said


def summary(different: Mapping[str, str | int | list[str] | None]) -> list[str]:
    """The differences in lines for people: long lists are cut, the statement has them whole."""
    lines = []
    for what, said in different.items():
        shown = [str(one) for one in said] if isinstance(said, list) else [str(said)]
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        lines.append(f"{what}: {'; '.join(shown[:8])}{more}")
    return lines
