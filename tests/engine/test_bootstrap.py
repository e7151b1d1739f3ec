"""The first call of `./vetted` makes its own environment: with uv in seconds, else with pip, else it says why not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import ROOT

NOWHERE = "http://127.0.0.1:9/simple"
PACKAGES = ("packaging", "uv")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose own packages are two of the real ones, and whose command prints who installed them."""
    root = tmp_path / "a clone"
    (root / "builder").mkdir(parents=True)
    (root / "builder" / "__init__.py").touch()
    shutil.copy(ROOT / "vetted", root)
    stanzas = re.split(r"\n(?=\S)", (ROOT / "requirements.txt").read_text())
    own = [stanza for stanza in stanzas if stanza.partition("==")[0] in PACKAGES]
    (root / "requirements.txt").write_text("\n".join(own) + "\n")
    (root / "builder" / "__main__.py").write_text(
        "from importlib.metadata import distribution\n"
        f"for name in {PACKAGES}: print(name, distribution(name).read_text('INSTALLER').strip())\n"
    )
    assert len(own) == len(PACKAGES)
    return root


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user may read. The folders that pytest makes are for its own user alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def call(clone: Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # ./nox sets it
    return subprocess.run(
        [clone / "vetted"], cwd=cwd, env={**own, **env}, capture_output=True, text=True, check=False, timeout=300
    )


def test_pip_installs_uv_and_uv_the_rest(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "logging.py").write_text("raise SystemExit('a module of the folder')")
    (tmp_path / "uv.toml").write_text('[pip]\ntarget = "elsewhere"\n')
    first = call(clone, cwd=tmp_path, UV_SYSTEM_PYTHON="1")
    assert (first.returncode, first.stdout) == (0, "packaging uv\nuv pip\n"), first.stderr
    assert first.stderr == "vetted: making its own environment in .venv (once)\n"
    again = call(clone, cwd=ROOT)  # which has a builder of its own
    assert (again.stdout, again.stderr) == (first.stdout, "")


def test_pip_installs_all_where_uv_reaches_no_index(clone: Path) -> None:
    done = call(clone, UV_DEFAULT_INDEX=NOWHERE, UV_NO_CACHE="1", UV_HTTP_RETRIES="0")
    assert (done.returncode, done.stdout) == (0, "packaging pip\nuv pip\n"), done.stderr


def test_without_an_index_it_says_what_to_set_and_the_next_call_begins_anew(clone: Path) -> None:
    done = call(clone, PIP_INDEX_URL=NOWHERE, PIP_EXTRA_INDEX_URL="", PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1] == (
        "vetted: next: set PIP_INDEX_URL, HTTPS_PROXY or PIP_CERT for your network, then run this again"
    )
    assert call(clone).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user: run it with sudo")
def test_a_user_without_a_home_folder_gets_it_too_and_nothing_in_the_current_folder(
    clone: Path, open_path: Path
) -> None:
    clone = Path(shutil.move(clone, open_path))
    (open_path / "here").mkdir()
    subprocess.run(["chown", "-R", "54321:54321", str(open_path)], check=True)
    homes = ("HOME", "XDG_CACHE_HOME", "UV_CACHE_DIR", "PYTHONPATH")
    argv = ["env", *(word for name in homes for word in ("-u", name))]
    argv += ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", str(clone / "vetted")]
    done = subprocess.run(argv, cwd=open_path / "here", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "packaging uv\nuv pip\n"), done.stderr
    assert list((open_path / "here").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user: run it with sudo")
def test_in_the_clone_of_another_user_it_says_so(clone: Path, open_path: Path) -> None:
    clone = Path(shutil.move(clone, open_path))  # which may be another file system
    argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(clone / "vetted")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert done.stderr.splitlines() == [
        f"vetted: {clone} may not be written by nobody",
        "vetted: usual cause: another user made this clone",
        f"vetted: next: sudo chown -R nobody '{clone}', or clone the project yourself",
    ]
