"""Environments of one command share files, and nothing of one is ever seen in another."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import hostenv
from builder.certify.cache import Cache
from builder.lock.lockfile import Entry, Lock
from tests.conftest import LIBRARY, Small

SOMEBODY = LIBRARY.replace("'nobody'", "'somebody'")
COMPILED = "__pycache__/tiny_lib.cpython-311.pyc"


@pytest.fixture
def cache(wheels: Small) -> Cache:
    return Cache(wheels.scratch() / "cache")


@contextmanager
def environment(small: Small, lock: Lock, cache: Cache) -> Iterator[Path]:
    """The site-packages of an environment with a scratch folder of its own."""
    scratch = cache.root.parent / f"side-{len(list(cache.root.parent.iterdir()))}"
    scratch.mkdir()
    with hostenv.temporary(small.project, lock, scratch, lambda _: None, cache) as prepared:
        yield prepared / lock.site_packages
    assert not prepared.exists()


@pytest.fixture
def plain(wheels: Small) -> Lock:
    """The same set as the stack's, without its patch."""
    return dataclasses.replace(wheels.lock, patches=())


def greets(site_packages: Path) -> str:
    """What the library says when it is imported, as a run of the suite imports it: the bytecode is written."""
    python = site_packages.parents[2] / "bin" / "python"
    return subprocess.run(
        [str(python), "-c", "import tiny_lib; print(tiny_lib.greeting)"],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": ""},
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def metadata(site_packages: Path) -> os.stat_result:
    return (site_packages / "tiny_lib-1.0.dist-info" / "METADATA").stat()


def test_a_patch_of_one_side_is_not_seen_on_another_that_runs_at_the_same_time(
    wheels: Small, plain: Lock, cache: Cache
) -> None:
    with environment(wheels, plain, cache) as bad, environment(wheels, wheels.lock, cache) as twin:
        assert metadata(bad).st_ino == metadata(twin).st_ino  # what is not patched is there once
        assert [greets(side) for side in (twin, bad, twin)] == ["somebody", "nobody", "somebody"]
        assert (bad / "tiny_lib.py").read_text() == LIBRARY
        assert (twin / "tiny_lib.py").read_text() == SOMEBODY


def test_sides_that_come_later_have_the_locked_files_and_bytecode_of_their_own_files_only(
    wheels: Small, plain: Lock, cache: Cache
) -> None:
    with environment(wheels, wheels.lock, cache) as twin:
        assert greets(twin) == "somebody"
        assert (twin / COMPILED).is_file()
    with environment(wheels, plain, cache) as bad:
        assert not (bad / COMPILED).exists()  # that of the patched file is nobody else's
        assert greets(bad) == "nobody"
        first = (bad / COMPILED).stat()
    with environment(wheels, plain, cache) as bad, environment(wheels, wheels.lock, cache) as twin:
        again = (bad / COMPILED).stat()
        assert (again.st_ino, again.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)  # compiled once
        assert not (twin / COMPILED).exists()
        assert [greets(side) for side in (twin, bad)] == ["somebody", "nobody"]
        assert (bad / COMPILED).stat().st_ino == first.st_ino
        assert (bad / "tiny_lib.py").read_text() == LIBRARY


def test_python_compiles_again_without_writing_into_bytecode_that_is_shared(
    wheels: Small, plain: Lock, cache: Cache
) -> None:
    with environment(wheels, plain, cache) as bad:
        greets(bad)
    with environment(wheels, plain, cache) as first, environment(wheels, plain, cache) as other:
        shared = (other / COMPILED).read_bytes()
        changed = first / "changed"
        changed.write_text("greeting = 'everybody'\n")
        changed.replace(first / "tiny_lib.py")
        assert greets(first) == "everybody"
        assert (other / COMPILED).read_bytes() == shared
        assert greets(other) == "nobody"


def test_a_run_that_writes_into_a_shared_file_is_an_error_that_names_it(
    wheels: Small, plain: Lock, cache: Cache
) -> None:
    with pytest.raises(errors.VettedError, match=r"wrote into tiny_lib\.py, which other sets share"):  # noqa: SIM117
        with environment(wheels, plain, cache) as bad:
            code = "import tiny_lib; open(tiny_lib.__file__, 'a').write('last = 4')"
            subprocess.run([str(bad.parents[2] / "bin" / "python"), "-c", code], check=True)


def test_without_links_nothing_is_shared(
    wheels: Small, plain: Lock, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another disk than uv's cache, or when a package writes into its own files."""
    monkeypatch.setenv("UV_LINK_MODE", "copy")
    with environment(wheels, plain, cache) as bad:
        assert greets(bad) == "nobody"
        (bad / "tiny_lib.py").write_text(SOMEBODY)
    with environment(wheels, plain, cache) as bad:
        assert not (bad / COMPILED).exists()
        assert greets(bad) == "nobody"


def test_what_ran_may_leave_what_nobody_can_list(wheels: Small, plain: Lock, cache: Cache) -> None:
    with environment(wheels, plain, cache) as bad:
        code = "import os\nfor _ in range(5000): os.mkdir('d'); os.chdir('d')"
        subprocess.run([str(bad.parents[2] / "bin" / "python"), "-c", code], cwd=bad, check=True)
        assert greets(bad) == "nobody"


def test_what_fails_leaves_no_environment(wheels: Small, plain: Lock, cache: Cache) -> None:
    scratch = cache.root.parent / "side"
    scratch.mkdir()
    with pytest.raises(KeyError), hostenv.temporary(wheels.project, plain, scratch, lambda _: None, cache):
        raise KeyError
    assert not (scratch / "host").exists()
    wheels.patch.write_text(wheels.patch.read_text().replace("-greeting = 'nobody'", "-greeting = 'anybody'"))
    with (
        pytest.raises(errors.BadInputError, match="does not apply exactly"),
        hostenv.temporary(wheels.project, wheels.lock, scratch, lambda _: None, cache),
    ):
        pass
    assert not (scratch / "host").exists()


def test_a_changed_hash_is_refused_though_the_wheel_was_unpacked_before(
    wheels: Small, plain: Lock, cache: Cache
) -> None:
    with environment(wheels, plain, cache) as bad:
        greets(bad)
    (entry,) = plain.python
    spoiled = dataclasses.replace(entry, sha256="0" * 64)
    lock = dataclasses.replace(plain, python=(spoiled,))
    with pytest.raises(errors.NetworkError, match=f"got      sha256:{entry.sha256}"), environment(wheels, lock, cache):
        pass


def test_a_source_distribution_is_built_once_for_each_python_and_set_of_tools(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    builds: list[Path] = []
    source, tool, other = (Entry(name, "1.0", "a" * 64) for name in ("source", "tool", "other"))

    def build() -> dict[Entry, Path]:
        folder = tmp_path / str(len(builds))
        folder.mkdir()
        builds.append(folder / "source-1.0-py3-none-any.whl")
        builds[-1].write_text(str(len(builds)))
        return {source: builds[-1]}

    def built(python: str, *tools: Entry) -> str:
        (wheel,) = cache.built([source], tools, python, build).values()
        assert wheel.name == "source-1.0-py3-none-any.whl"
        return wheel.read_text()

    assert [built("3.11", tool), built("3.11", tool)] == ["1", "1"]
    assert [built("3.12", tool), built("3.11", other), built("3.11", tool)] == ["2", "3", "1"]
