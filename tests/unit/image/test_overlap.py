"""What an extension's archives must not bring, read from the archives themselves."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from builder.base import machine
from builder.image import overlap
from tests.conftest import make_wheel

COMMANDS = "[console_scripts]\n{name} = x:main\n[other]\nplugin = y\n"


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    files = {
        "lib/__init__.py": "", "lib/core.py": "x = 1\n", "lib/fast.cpython-311-x86_64-linux-gnu.so": "",
        "single.py": "x = 1\n", "parent-1.0.data/scripts/tool": "#!python\n",
        "parent-1.0.dist-info/entry_points.txt": COMMANDS.format(name="train"),
    }  # fmt: skip
    return make_wheel(tmp_path / "parent", "parent", "1.0", files)[0]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"lib/core.py": "x = 2\n"}, "brings another lib/core.py than parent-1.0-py3-none-any.whl"),
        ({"lib/core/__init__.py": ""}, "brings lib/core/__init__.py, which hides lib/core.py"),
        ({"lib/fast.py": ""}, "brings lib/fast.py, which hides lib/fast.cpython-311-x86_64-linux-gnu.so"),
        ({"single/__init__.py": ""}, "brings single/__init__.py, which hides single.py"),
        ({"own-1.0.data/purelib/lib/core.py": "x = 2\n"}, "brings another lib/core.py"),
        ({"own-1.0.data/scripts/tool": "#!python\nelse\n"}, "brings another bin/tool"),
        ({"own-1.0.dist-info/entry_points.txt": COMMANDS.format(name="train")}, "brings another bin/train"),
        (
            {"own-1.0.dist-info/entry_points.txt": COMMANDS.format(name="python3")},
            "brings bin/python3, which is the im",
        ),
        ({"own-1.0.dist-info/entry_points.txt": COMMANDS.format(name="vetted")}, "brings bin/vetted, which is the im"),
        ({"own-1.0.data/data/pyvenv.cfg": ""}, "brings pyvenv.cfg, which is the image's own"),
        ({"../../evil.py": ""}, "which is the image's own"),
        ({"hook.pth": "import os"}, "brings hook.pth, which every Python would run at its start"),
        ({"usercustomize/__init__.py": ""}, "which every Python would run at its start"),
    ],
)
def test_what_belongs_to_the_parent_or_starts_by_itself_is_found(
    parent: Path, tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    own, _ = make_wheel(tmp_path / "own", "own", "1.0", files)
    refusals = overlap.findings([own], [parent])
    assert len(refusals) == 1 and refusals[0].startswith("own-1.0-py3-none-any.whl ") and reason in refusals[0]


def test_what_is_beside_the_parents_or_the_same_bytes_is_fine(parent: Path, tmp_path: Path) -> None:
    files = {
        "lib/__init__.py": "", "lib/more.py": "", "own/hook.pth": "", "own/core.py": "", "other.py": "",
        "own-1.0.dist-info/entry_points.txt": COMMANDS.format(name="evaluate"),
        "own-1.0.data/data/share/own.txt": "",
    }  # fmt: skip
    own, _ = make_wheel(tmp_path / "own", "own", "1.0", files)
    assert overlap.findings([own], [parent]) == []


def test_a_source_distribution_of_the_parent_has_the_package_of_its_name(tmp_path: Path) -> None:
    source = tmp_path / "deepspeed-1.0.tar.gz"
    (tmp_path / "x.py").write_text("x = 1\n")
    with tarfile.open(source, "w:gz") as archive:
        for name in ("deepspeed-1.0/deepspeed/ops.py", "deepspeed-1.0/setup.py", "deepspeed-1.0/tests/x.py"):
            archive.add(tmp_path / "x.py", name)
    own, _ = make_wheel(tmp_path / "own", "own", "1.0", {"deepspeed/ops.py": "", "tests/x.py": "", "setup.py": ""})
    assert overlap.findings([own], [source]) == [
        "own-1.0-py3-none-any.whl brings another deepspeed/ops.py than deepspeed-1.0.tar.gz"
    ]


def test_as_a_script_it_reads_the_layers_of_the_parent_alone(tmp_path: Path) -> None:
    """What is built from source becomes a wheel only in the image build."""
    wheels, built = tmp_path / "wheels", tmp_path / "built"
    for layer in ("libraries", "own", "own-source", "own-build", "build"):
        make_wheel(wheels / layer, f"of-{layer}", "1.0", {f"{layer.replace('-', '_')}.py": "x = 1\n"})
    make_wheel(built, "one", "1.0", {"own.py": "", "build.py": "", "own_source.py": ""})

    def run() -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-I", "-S", overlap.__file__, str(wheels), str(built)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert (run().returncode, run().stderr) == (0, "")
    make_wheel(built, "other", "1.0", {"libraries.py": ""})
    assert run().returncode == 1
    assert "other-1.0-py3-none-any.whl brings another libraries.py than of_libraries" in run().stderr


@pytest.mark.parametrize(
    "path",
    [
        "lib/core.py", "./lib//core.py", "own-1.0.data/platlib/lib/core.py", "own-1.0.data/scripts/tool",
        "own-1.0.data/data/lib64/python3.11/site-packages/lib/core.py", "own-1.0.data/headers/own.h",
        "own-1.0.data/data/share/own.txt", "foo.data/purelib/lib/core.py", "lib/core.py.data/x",
    ],
)  # fmt: skip
def test_files_are_where_the_installer_puts_them(tmp_path: Path, path: str) -> None:
    """uv itself installs the wheel: what it writes, and nothing else, is what is compared."""
    wheel, _ = make_wheel(tmp_path / "own", "own", "1.0", {path: "x = 1\n"})
    environment, bare = tmp_path / "venv", {"PATH": "/usr/bin:/bin", "UV_NO_CONFIG": "1"}
    python, uv = str(environment / "bin" / "python"), [machine.uv_binary(), "--quiet", "--offline", "--no-cache"]
    subprocess.run([*uv, "venv", "--no-project", "--python", sys.executable, str(environment)], env=bare, check=True)
    before = {file for file in environment.rglob("*") if file.is_file()}
    install = [*uv, "pip", "install", "--no-deps", "--no-index", "--python", python, str(wheel)]
    subprocess.run(install, env=bare, check=True, capture_output=True)
    written = {file for file in environment.rglob("*") if file.is_file()} - before
    plain = {re.sub(r"(lib|include)(64)?/(site/)?python3[.]\d+/", r"\1/\3", str(file.relative_to(environment)))
             for file in written if ".dist-info" not in str(file) and file.name != ".lock"}  # fmt: skip
    (said,) = (file.path for file in overlap._files(wheel) if ".dist-info" not in file.path)
    assert plain == {said.replace("site-packages/", "lib/site-packages/", 1) if said.startswith("site") else said}
