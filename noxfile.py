"""Every task that a person or CI runs: `./nox -l` lists them. They run in the tool's own locked environment."""

from __future__ import annotations

import os
import sys

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "tests"]
# `./nox` has made .venv from requirements.txt already: a second environment would be the same one.
nox.options.default_venv_backend = "none"

VETTED = (sys.executable, "-m", "builder")
# Tests start thousands of short processes: each would compile the same modules again.
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
# Folders whose tests all need more: their conftest.py marks every one.
ENGINE = ("tests/engine", "tests/gpu", "tests/registry")
MEMORY = "/dev/shm"
ROOM = 6 << 30  # bytes


@nox.session
def tests(session: nox.Session) -> None:
    """The tests that need nothing but this Python, in minutes: ./nox -s tests -- [PYTEST ARGUMENTS]."""
    parallel = ["--numprocesses", "logical", "--dist", "worksteal", "--durations", "15"]
    parallel += [f"--ignore={folder}" for folder in ENGINE]
    session.run(sys.executable, "-m", "pytest", *(session.posargs or parallel), env=BYTECODE | folders_in_memory())


def folders_in_memory() -> dict[str, str]:
    """Folders of tests in memory where there is room: a test makes and removes hundreds of files."""
    try:
        disk = os.statvfs(MEMORY)
    except OSError:
        return {}
    room = min(disk.f_bavail * disk.f_frsize, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if disk.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) or room < ROOM or not os.access(MEMORY, os.W_OK):
        return {}
    return {"PYTEST_DEBUG_TEMPROOT": MEMORY}


@nox.session(default=False)
def engine(session: nox.Session) -> None:
    """The tests that need a Docker engine, the package indexes or many minutes: ./nox -s engine -- [PYTEST ARGUMENTS].

    A test whose part is missing on this machine is skipped, and says how to get the part.
    """
    # A file's tests stay together: what the first of them installs or builds, the others find (tests/distribution.py).
    # One more worker than cores: an installation or a container often waits for the disk.
    workers = str((os.cpu_count() or 1) + 1)
    # Each test's line as it begins and ends: a log that breaks off says what was running.
    parallel = ["--numprocesses", workers, "--dist", "loadfile", "--durations", "50", "--verbose"]
    session.run(sys.executable, "-m", "pytest", "-m", "engine", *(session.posargs or parallel), env=BYTECODE)


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting, ruff, types, imports downwards only, and everything rendered is up to date."""
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports", "--no-cache")
    session.run(*VETTED, "render", "--check")


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Lock the stacks named (default: all), and the tool's own packages."""
    compile_command = ["uv", "pip", "compile", "pyproject.toml", "--extra", "site", "--group", "dev"]
    session.run(
        *compile_command, "--generate-hashes", "--universal", "--no-annotate", "--no-emit-index-url",
        "--python-version", "3.11", "--quiet", "--output-file", "requirements.txt",
        env={"UV_CUSTOM_COMPILE_COMMAND": "./nox -s lock"}, silent=True,
    )  # fmt: skip
    session.run(*VETTED, "lock", *session.posargs)


@nox.session(default=False)
def render(session: nox.Session) -> None:
    """Render the Dockerfiles and the generated parts of the documents."""
    session.run(*VETTED, "render", *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the image of a stack: ./nox -s build -- STACK [--prove]."""
    session.run(*VETTED, "build", *session.posargs)


@nox.session(default=False)
def certify(session: nox.Session) -> None:
    """Certify a stack: ./nox -s certify -- STACK."""
    session.run(*VETTED, "certify", *session.posargs)


@nox.session(default=False)
def controls(session: nox.Session) -> None:
    """The suite on version sets that are known to be bad, and on their good twins: ./nox -s controls -- [NAME…]."""
    session.run(*VETTED, "controls", *session.posargs)


@nox.session(default=False)
def recertify(session: nox.Session) -> None:
    """Try an upgrade aside, and take it over when all is green: ./nox -s recertify -- STACK [--upgrade PACKAGE]…."""
    session.run(*VETTED, "recertify", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Ratios, all variants of each in one run: ./nox -s bench -- [--record]. Empties BuildKit's cache."""
    session.run(sys.executable, "-m", "benchmarks.suite", *session.posargs)
    session.run(sys.executable, "-m", "benchmarks.images", *session.posargs)


@nox.session(default=False)
def false_alarms(session: nox.Session) -> None:
    """The suite on the certified CPU stack over many seeds, under load: ./nox -s false_alarms -- [--record]."""
    session.run(sys.executable, "-m", "benchmarks.false_alarms", *session.posargs)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """The suite against libraries that were each made a little wrong: ./nox -s mutants -- [--file OTHER.toml]."""
    session.run(sys.executable, "-m", "tests.mutants", *session.posargs)
