"""The host's environment: whole or not there, of exactly the locked bytes, and patched without touching uv's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from builder.base import errors, machine, project, seal
from builder.certify import hostenv
from builder.image import sdist
from builder.lock import debian
from tests.conftest import LIBRARY, PYTHON, TINY, Small, make_wheel


def prepare(small: Small) -> tuple[Path, list[str]]:
    messages: list[str] = []
    return hostenv.prepare(small.project, small.lock, small.scratch(), messages.append), messages


def module(small: Small, environment: Path) -> Path:
    return environment / small.lock.site_packages / "tiny_lib.py"


def environments(small: Small) -> list[str]:
    return sorted(path.name for path in (small.project.state / "host").glob("*") if path.is_dir())


def test_the_environment_holds_the_locked_and_patched_distributions(wheels: Small) -> None:
    environment, messages = prepare(wheels)
    assert environment == hostenv.path(wheels.project, wheels.lock)
    assert not (wheels.project.scratch(TINY) / "host").exists()  # renamed, so it was never there by halves
    python = [str(environment / "bin" / "python"), "-c"]
    printed = subprocess.run([*python, "import tiny_lib; print(tiny_lib.greeting)"], capture_output=True, check=True)
    assert printed.stdout == b"somebody\n"
    assert "installing 1 locked distributions" in messages


def test_the_same_lock_is_not_installed_twice(wheels: Small) -> None:
    environment, _ = prepare(wheels)
    before = environment.stat().st_ino
    again, messages = prepare(wheels)
    assert (again, messages) == (environment, ["checking the environment"])
    assert environment.stat().st_ino == before


def test_what_is_not_kept_is_made_each_time(wheels: Small) -> None:
    environment = hostenv.prepare(wheels.project, wheels.lock, wheels.scratch(), lambda _: None, keep=False)
    assert module(wheels, environment).is_file()
    messages = prepare(wheels)[1]
    assert "installing 1 locked distributions" in messages


def test_running_writes_nothing_into_an_environment(wheels: Small) -> None:
    environment, _ = prepare(wheels)
    before = seal.tree(environment)
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([str(environment / "bin" / "python"), "-c", "import tiny_lib"], env=env, check=True)
    assert seal.tree(environment) == before


def test_the_environment_of_an_earlier_lock_goes_and_that_of_another_stack_stays(wheels: Small) -> None:
    before, _ = prepare(wheels)
    neighbour = before.with_name(f"{TINY}-er-{'0' * 12}")
    neighbour.mkdir()
    wheels.patch.write_text(wheels.patch.read_text().replace("+greeting = 'somebody'", "+greeting = 'everybody'"))
    after, _ = prepare(wheels)
    assert before != after
    assert environments(wheels) == sorted([after.name, neighbour.name])


def test_one_digit_changed_in_a_locked_hash_names_package_expected_and_got(wheels: Small) -> None:
    true = wheels.lock.python[0].sha256
    false = f"{(int(true[0], 16) + 1) % 16:x}{true[1:]}"
    wheels.edit("requirements.txt", true, false)
    with pytest.raises(errors.NetworkError) as caught:
        prepare(wheels)
    assert caught.value.exit_code == 5
    first, expected, got = caught.value.what.splitlines()
    assert first.startswith("tiny-lib==1.0: ")
    assert expected == f"expected sha256:{false}"
    assert got == f"got      sha256:{true}"
    assert environments(wheels) == []


def test_a_wheel_that_is_nowhere_is_an_error_and_leaves_no_environment(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match="the locked versions cannot be found"):
        prepare(small)
    assert environments(small) == []


def test_a_patch_that_does_not_apply_is_a_bad_input_and_leaves_no_environment(wheels: Small) -> None:
    wheels.patch.write_text(wheels.patch.read_text().replace("-greeting = 'nobody'", "-greeting = 'anybody'"))
    with pytest.raises(errors.BadInputError, match=r"does not apply exactly to tiny_lib\.py") as caught:
        prepare(wheels)
    assert "correct the patch" in caught.value.next_step
    assert environments(wheels) == []


def test_a_python_that_is_not_there_is_a_missing_tool(wheels: Small) -> None:
    wheels.edit("stack.toml", f'python = "{wheels.lock.stack.python}"', 'python = "3.99"')
    with pytest.raises(errors.MissingToolError, match=r"tiny needs Python 3\.99, and this machine has none") as caught:
        prepare(wheels)
    assert "--engine docker" in caught.value.next_step


def test_patching_replaces_the_installed_file_and_not_the_link_in_uvs_cache(small: Small, tmp_path: Path) -> None:
    cached, site = tmp_path / "cached.py", tmp_path / "site"
    site.mkdir()
    cached.write_text(LIBRARY)
    (site / "tiny_lib.py").hardlink_to(cached)
    hostenv._patch(small.lock, site, tmp_path / "output")
    assert (site / "tiny_lib.py").read_text() == LIBRARY.replace("'nobody'", "'somebody'")
    assert cached.read_text() == LIBRARY
    assert sorted(path.name for path in site.iterdir()) == ["tiny_lib.py"]


LIBRARY_FILE = "usr/lib/x86_64-linux-gnu/libtiny.so.9"


@pytest.fixture
def lacking(wheels: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Small:
    """A machine without a library of which the stack has the Debian package, fetched already."""
    monkeypatch.setattr(debian, "LIBRARIES", {"bsdutils": "libtiny.so.9"})
    if not shutil.which("dpkg-deb") or not shutil.which("apt-get"):
        pytest.skip("this machine has no dpkg and no apt")
    tree = tmp_path / "tree"
    for name, text in {
        LIBRARY_FILE: "a library",
        "DEBIAN/control": "Package: bsdutils\nVersion: 1\nArchitecture: amd64\nMaintainer: x\nDescription: x\n",
    }.items():
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text(text)
    package = tmp_path / "package.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(package)], capture_output=True, check=True)
    sha256 = project.sha256_file(package).removeprefix("sha256:")
    wheels.edit("debian.txt", "d" * 64, sha256)
    cache = wheels.project.state / "debs"
    cache.mkdir(parents=True)
    package.rename(cache / f"{sha256}.deb")
    return wheels


def test_a_system_library_that_is_lacking_comes_from_the_locked_package(lacking: Small) -> None:
    environment, _ = prepare(lacking)
    (folder,) = hostenv.environment(environment).values()
    assert (Path(folder) / "libtiny.so.9").read_text() == "a library"
    assert str(environment / "system" / LIBRARY_FILE).startswith(folder)


def test_what_the_host_finds_libraries_by_stays_and_comes_after(
    lacking: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, _ = prepare(lacking)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver/lib")
    ours, theirs = hostenv.environment(environment)["LD_LIBRARY_PATH"].split(":")
    assert ours.startswith(str(environment))
    assert theirs == "/driver/lib"


def test_a_library_from_a_locked_package_that_is_here_already_needs_no_apt(
    lacking: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "apt-get" else which(name))
    assert hostenv.environment(prepare(lacking)[0])


def test_the_toolkit_in_the_wheels_gets_its_usual_names(wheels: Small) -> None:
    nvcc, _ = make_wheel(
        wheels.wheelhouse, "nvidia-cuda-nvcc", "13.0.88",
        {"nvidia/cu13/bin/nvcc": "", "nvidia/cu13/lib/libcudart.so.13": ""},
    )  # fmt: skip
    sha256 = project.sha256_file(nvcc).removeprefix("sha256:")
    requirements = wheels.file("requirements.txt")
    requirements.write_text(f"{requirements.read_text()}nvidia-cuda-nvcc==13.0.88 --hash=sha256:{sha256}\n")
    environment, _ = prepare(wheels)
    home = Path(hostenv.environment(environment)["CUDA_HOME"])
    assert home == environment / wheels.lock.site_packages / "nvidia" / "cu13"
    assert (home / "lib64" / "libcudart.so").is_file()
    assert (home / "lib" / "stubs" / "libcuda.so").read_text().endswith(" INPUT(libcuda.so.1)\n")


def test_a_machine_that_lacks_nothing_needs_no_variables(wheels: Small) -> None:
    assert hostenv.environment(prepare(wheels)[0]) == {}


def test_a_system_library_that_nothing_can_bring_is_a_missing_tool(
    wheels: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(debian, "LIBRARIES", {"bsdutils": "libtiny.so.9"})
    (tmp_path / f"python{PYTHON}").symlink_to(Path(sys.base_prefix) / "bin" / f"python{PYTHON}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.MissingToolError, match=r"this machine lacks libtiny\.so\.9") as caught:
        prepare(wheels)
    assert "bsdutils" in caught.value.next_step and "--engine docker" in caught.value.next_step
    assert environments(wheels) == []


def full_disk(folder: Path, when: str) -> Path:
    """A uv that runs out of disk in one of its commands, and is the real one in all others."""
    fake = folder / "uv"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in\n  {when}*) echo "error: No space left on device (os error 28)" >&2; exit 2 ;;\n'
        f'esac\nexec {machine.uv_binary()} "$@"\n'
    )
    fake.chmod(0o755)
    return fake


@pytest.mark.parametrize(
    "when",
    [
        "pip",
        "venv",
    ],
)
def test_a_full_disk_is_told_as_one_and_what_was_there_is_untouched(
    wheels: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    before, _ = prepare(wheels)
    wheels.patch.write_text(wheels.patch.read_text().replace("+greeting = 'somebody'", "+greeting = 'everybody'"))
    fake = str(full_disk(tmp_path, when))
    monkeypatch.setattr(machine, "uv_binary", lambda: fake)
    with pytest.raises(errors.VettedError) as caught:
        prepare(wheels)
    assert environments(wheels) == [before.name]
    assert caught.value.exit_code == 6


def test_only_what_has_no_wheel_may_be_built(wheels: Small, tmp_path: Path) -> None:
    archive = tmp_path / "tiny_lib-1.0.tar.gz"
    archive.write_bytes(b"any")
    entry = replace(wheels.lock.python[0], sha256=project.sha256_file(archive)[7:])
    with pytest.raises(errors.BadInputError, match=r"tiny_lib-1\.0\.tar\.gz is no wheel"):
        sdist.refuse({entry: archive})
    sdist.refuse({replace(entry, name="deepspeed"): archive})
    with pytest.raises(errors.NetworkError, match="the file is not the locked one"):
        sdist.refuse({replace(entry, name="deepspeed", sha256="0" * 64): archive})
