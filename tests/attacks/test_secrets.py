"""Attacks on this machine's secrets: programs that look for them in their environment, and send them away."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.base import environment, process, project
from builder.image import sdist
from builder.lock.lockfile import Entry
from tests.conftest import Small

SECRETS = {
    "COSIGN_PASSWORD": {"cosign"},
    "AWS_SECRET_ACCESS_KEY": {"cosign"},
    "VAULT_TOKEN": {"cosign"},
    "HF_TOKEN": set[str](),
    "WANDB_API_KEY": set[str](),
    "GITHUB_TOKEN": set[str](),
    "UV_INDEX_PRIVATE_PASSWORD": {"uv"},
    "UV_DEFAULT_INDEX": {"uv"},
    "HTTPS_PROXY": {"uv", "cosign", "docker", "oras", "apt-get", "skopeo"},
    "DOCKER_AUTH_CONFIG": {"docker"},
}
PROGRAMS = (
    "uv",
    "cosign",
    "docker",
    "oras",
    "skopeo",
    "apt-get",
    "mmdebstrap",
    "python",
    "unshare",
    "sh",
    sdist.FOREIGN,
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_child_looks_for_secrets_in_its_environment(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each secret is for one program, and no program of a stack gets any."""
    for name in SECRETS:
        monkeypatch.setenv(name, "planted-secret")
    variables = environment.of(f"/opt/{program}")
    expected = {name for name, programs in SECRETS.items() if program in programs}
    assert {name for name in SECRETS if name in variables} == expected
    assert variables["PATH"] == os.environ["PATH"]


def test_a_suite_finds_the_password_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite once ran with all variables of the tool."""
    for name in SECRETS:
        monkeypatch.setenv(name, "planted-secret")
    child = process.run([sys.executable, "-c", "import os; print(os.environ)"], env={"GIVEN": "given"})
    assert child.returncode == 0
    assert "planted-secret" not in child.output
    assert "'GIVEN': 'given'" in child.output


SETUP = """\
import os, socket
from setuptools import setup
secrets = sorted(name for name, value in os.environ.items() if "planted-secret" in value)
try:
    socket.create_connection(("127.0.0.1", {port}), 2).close()
    secrets.append("network")
except OSError:
    pass
setup(name="deepspeed", version="1.0", py_modules=[], description=" ".join(secrets) or "nothing")
"""
BACKEND = """\
import os, runpy, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    metadata = {}
    import sys, types
    sys.modules["setuptools"] = fake = types.ModuleType("setuptools")
    fake.setup = lambda **arguments: metadata.update(arguments)
    runpy.run_path("setup.py")
    name = "deepspeed-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("deepspeed-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\\nName: deepspeed\\nVersion: 1.0\\nSummary: " + metadata["description"] + "\\n")
        wheel.writestr("deepspeed-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("deepspeed-1.0.dist-info/RECORD", "")
    return name
"""


@pytest.fixture
def listening() -> Iterator[int]:
    """The port of a service on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()
        server.settimeout(0.1)

        def answer() -> None:
            while not stop.is_set():
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        stop.set()
        thread.join()


def test_a_setup_py_on_the_host_takes_the_credentials_and_calls_home(
    wheels: Small, listening: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It once saw every secret of the machine, and the network."""
    for name in SECRETS:
        monkeypatch.setenv(name, "planted-secret")
    archive = tmp_path / "deepspeed-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name, text in {
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "setup.py": SETUP.format(port=listening),
            "backend.py": BACKEND,
            "PKG-INFO": "Metadata-Version: 2.1\nName: deepspeed\nVersion: 1.0\n",
        }.items():
            member = tarfile.TarInfo(f"deepspeed-1.0/{name}")
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    entry = Entry("deepspeed", "1.0", project.sha256_file(archive)[7:])
    venv = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    messages: list[str] = []
    built = sdist.build({entry: archive}, {}, venv, wheels.scratch(), messages.append)
    with zipfile.ZipFile(built[entry]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        summary = wheel.read(name).decode().partition("Summary: ")[2].splitlines()[0]
    assert summary == (
        "network" if any("allows no network namespace" in message for message in messages) else "nothing"
    )
