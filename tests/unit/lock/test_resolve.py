"""Making a lock with the real uv, from a wheelhouse and without a network."""

from __future__ import annotations

import io
import tarfile
import tomllib
from collections.abc import Sequence

import pytest
from packaging.tags import Tag

from builder.base import errors, machine
from builder.intent import stack
from builder.lock import index, lockfile, metadata, resolve, solver
from builder.lock.lockfile import Entry
from tests.conftest import PYTHON, TINY, Small, make_wheel

FILES = ("requirements.txt", "build.txt", "debian.txt", "lock.toml")


class Bench:
    """A stack whose wheels lie in its wheelhouse, to be locked."""

    def __init__(self, small: Small) -> None:
        self.small = small
        self.requirements = '"tiny-lib==1.0"'

    def offer(self, name: str, version: str, *requires: str) -> str:
        return make_wheel(self.small.wheelhouse, name, version, {f"{name}.py": ""}, requires)[1]

    def require(self, *requires: str) -> None:
        requirements = ", ".join(f'"{line}"' for line in requires)
        self.small.edit("stack.toml", f"requires = [{self.requirements}]", f"requires = [{requirements}]")
        self.requirements = requirements

    def lock(self, upgrade: Sequence[str] | None = None) -> bool:
        changed = stack.load(self.small.project, TINY)
        return resolve.make(self.small.project, TINY, changed, self.small.scratch(), upgrade)

    @property
    def versions(self) -> dict[str, str]:
        return self.small.lock.versions

    @property
    def written(self) -> dict[str, bytes]:
        return {name: self.small.file(name).read_bytes() for name in FILES}


@pytest.fixture
def bench(small: Small, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(small.wheelhouse))
    return Bench(small)


def test_a_lock_holds_everything_that_is_needed_with_the_hash_of_its_file(bench: Bench) -> None:
    sha256 = bench.offer("needed", "3.0")
    bench.offer("picky", "1.0", "needed", "unwanted")
    bench.require("tiny-lib==1.0", "picky")
    assert bench.lock() is True
    lock = bench.small.lock
    assert lock.versions == {"needed": "3.0", "picky": "1.0", "tiny-lib": "1.0"}
    assert lock.python[0] == Entry("needed", "3.0", sha256)
    assert lock.intent == lockfile.intent(lock.stack)
    assert lock.epoch == resolve.EPOCH["bookworm"]
    assert lock.build == ()


def test_locking_again_changes_nothing(bench: Bench) -> None:
    bench.lock()
    before = bench.written
    assert bench.lock() is False
    assert bench.written == before


def test_a_lock_names_no_path_of_the_machine(bench: Bench) -> None:
    bench.lock()
    assert b"wheelhouse" not in b"".join(bench.written.values())
    assert str(bench.small.root).encode() not in b"".join(bench.written.values())


def test_a_locked_version_stays_until_an_upgrade_is_asked_for(bench: Bench) -> None:
    for name in ("one", "two"):
        bench.offer(name, "1.0")
    bench.require("one", "two")
    bench.small.edit("stack.toml", 'package = "tiny-lib"', 'package = "one"')
    bench.lock()
    for name in ("one", "two"):
        bench.offer(name, "2.0")
    assert bench.lock() is False
    assert bench.versions == {"one": "1.0", "two": "1.0"}
    assert bench.lock(["two"]) is True
    assert bench.versions == {"one": "1.0", "two": "2.0"}


def test_the_base_layer_stays_as_it_was_locked(bench: Bench) -> None:
    before = bench.small.lock.debian
    bench.offer("one", "1.0")
    bench.require("tiny-lib==1.0", "one")
    assert bench.lock() is True
    assert bench.small.lock.debian == before
    assert before


def test_versions_that_exclude_each_other_are_a_bad_input_with_uvs_words(bench: Bench) -> None:
    bench.offer("needed", "3.0")
    bench.offer("picky", "1.0", "needed<3")
    bench.require("needed==3.0", "picky==1.0")
    before = bench.written
    with pytest.raises(errors.BadInputError, match="the stack has no solution") as caught:
        bench.lock()
    assert "picky" in caught.value.what and "needed" in caught.value.what
    assert "[[override]]" in caught.value.next_step
    assert bench.written == before


def test_an_upgrade_of_what_is_not_locked_is_a_bad_input(bench: Bench) -> None:
    with pytest.raises(errors.BadInputError, match="not in this lock: nothing-such"):
        bench.lock(["nothing-such"])


@pytest.mark.usefixtures("dead_index")
def test_an_index_that_does_not_answer_is_a_matter_of_the_network(bench: Bench) -> None:
    before = bench.written
    with pytest.raises(errors.NetworkError, match="the network did not answer") as caught:
        bench.lock()
    assert caught.value.exit_code == 5
    assert "HTTPS_PROXY" in caught.value.next_step
    assert bench.written == before


def test_a_wheel_for_another_system_is_not_locked(bench: Bench) -> None:
    (wheel,) = bench.small.wheelhouse.iterdir()
    wheel.rename(wheel.with_name("tiny_lib-1.0-py3-none-win_amd64.whl"))
    with pytest.raises(errors.BadInputError, match="tiny-lib"):
        bench.lock()


@pytest.mark.parametrize(
    ("debian", "tag", "runs"),
    [
        ("bookworm", "manylinux_2_36_x86_64", True),
        ("bookworm", "manylinux_2_37_x86_64", False),
        ("trixie", "manylinux_2_41_x86_64", True),
        ("bookworm", "manylinux2014_x86_64", True),
        ("bookworm", "linux_x86_64", True),
        ("bookworm", "manylinux_2_17_aarch64", False),
        ("bookworm", "musllinux_1_2_x86_64", False),
        ("bookworm", "win_amd64", False),
    ],
)
def test_wheels_ask_for_no_newer_glibc_and_no_other_system(small: Small, debian: str, tag: str, runs: bool) -> None:
    if debian != "bookworm":
        small.edit("stack.toml", '"bookworm"', f'"{debian}"')
    interpreter = f"cp{PYTHON.replace('.', '')}"
    offered = index.tags(stack.load(small.project, TINY))
    assert (Tag(interpreter, interpreter, tag) in offered) is runs
    assert (Tag("cp39", "abi3", tag) in offered) is runs


def test_the_most_specific_wheel_is_the_best(small: Small) -> None:
    interpreter = f"cp{PYTHON.replace('.', '')}"
    names = [
        f"x-1-{interpreter}-{interpreter}-manylinux_2_28_x86_64.whl", f"x-1-{interpreter}-none-linux_x86_64.whl",
        "x-1-cp39-abi3-manylinux_2_28_x86_64.whl", "x-1-py3-none-any.whl", "x-1-cp27-cp27m-win32.whl",
    ]  # fmt: skip
    order = {tag: rank for rank, tag in enumerate(index.tags(stack.load(small.project, TINY)))}
    ranks = [index._rank(index.File("x", "1", name, "", ""), order) for name in names]
    assert ranks[-1] is None
    fitting = [rank for rank in ranks if rank is not None]
    assert len(fitting) == 4
    assert min(fitting) == ranks[0] and max(fitting) == ranks[3]


def sdist(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"x-1/{name.replace('__', '/')}.toml")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("files", "requires"),
    [
        ({"pyproject": '[build-system]\nrequires = ["hatchling>=1", "ninja"]\n'}, ["hatchling>=1", "ninja"]),
        ({"pyproject": "[project]\nname = 'x'\n"}, ["setuptools"]),
        ({"other": ""}, ["setuptools"]),
        ({"vendored__pyproject": '[build-system]\nrequires = ["other"]\n'}, ["setuptools"]),
    ],
)
def test_a_source_distribution_says_what_builds_it(files: dict[str, str], requires: list[str]) -> None:
    assert metadata.build_requirements(sdist(**files)) == requires


def test_the_index_of_torch_is_not_asked_for_what_the_wheelhouse_has(bench: Bench) -> None:
    bench.require("torch==2.13.0+cpu")
    changed = stack.load(bench.small.project, TINY)
    assert solver.torch_backend(changed) == "cpu"
    (bench.small.wheelhouse / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert solver.torch_backend(changed) is None


def test_a_download_that_fails_is_a_matter_of_the_network(small: Small) -> None:
    file = index.File("x", "1", "x-1.whl", str(small.root / "gone" / "x-1.whl"), "")
    with pytest.raises(errors.NetworkError, match=r"x-1\.whl: "):
        index.download(file)
    (wheel,) = small.wheelhouse.iterdir()
    assert index.download(index.File("x", "1", wheel.name, str(wheel), "")) == wheel.read_bytes()


def test_what_is_written_is_toml_and_says_not_to_edit_it(bench: Bench) -> None:
    bench.lock()
    assert set(tomllib.loads(bench.small.file("lock.toml").read_text())) == {"intent", "epoch"}
    for text in bench.written.values():
        assert text.startswith(f"# Written by `vetted lock {TINY}` from stack.toml: do not edit.\n".encode())


def test_uv_is_the_one_of_the_tool_itself() -> None:
    assert machine.uv_binary().startswith("/")
