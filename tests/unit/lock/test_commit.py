"""A commit as a source archive: the same bytes from every clone, and words for what cannot be packed."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import commit, extension, lockfile
from builder.lock.requirements import Commit
from tests import parts
from tests.conftest import TINY, Small, make_wheel
from tests.unit.conftest import Command

PROJECT = '[project]\nname = "reward-kit"\nversion = "1.4"\n[build-system]\nrequires = ["flit_core"]\n'


class Repository:
    """A repository with a package in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet")

    def git(self, *argv: str) -> str:
        me = ["-c", "user.name=me", "-c", "user.email=me@host.test"]
        done = subprocess.run([parts.git(), *me, *argv], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "-m", "one")
        return self.git("rev-parse", "HEAD")

    def line(self, revision: str, name: str = "reward-kit") -> str:
        return f"{name} @ git+file://{self.folder}@{revision}"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def packed(line: str, folder: Path) -> Path:
    (folder / "scratch").mkdir(parents=True)
    return commit.archive(Commit(line), folder / "sources", folder / "scratch")


def test_two_clones_pack_the_same_bytes(repository: Repository, tmp_path: Path) -> None:
    at = repository.commit(pyproject_dot_toml=PROJECT, reward_kit__init_dot_py="x = 1\n", _dot_gitattributes="* text\n")
    first, other = (packed(repository.line(at), tmp_path / name) for name in ("one", "other"))
    assert first.name == "reward_kit-1.4.tar.gz" and first.read_bytes() == other.read_bytes()
    with tarfile.open(first) as archive:
        names = archive.getnames()
        assert {member.mtime for member in archive} == {0}
    assert "reward_kit-1.4/PKG-INFO" in names and names == sorted(names)
    later = repository.commit(reward_kit__init_dot_py="x = 2\n")
    assert packed(repository.line(later), tmp_path / "later").read_bytes() != first.read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (PROJECT.replace("reward-kit", "other"), "the project at this commit is other"),
        ("[project]\n", "its version cannot be found without the repository's history"),
    ],
)
def test_what_cannot_be_packed_is_told(repository: Repository, tmp_path: Path, content: str, reason: str) -> None:
    at = repository.commit(pyproject_dot_toml=content)
    with pytest.raises(errors.BadInputError, match=reason):
        packed(repository.line(at), tmp_path / "one")


def test_a_commit_and_a_repository_that_are_not_there_are_told(repository: Repository, tmp_path: Path) -> None:
    repository.commit(pyproject_dot_toml=PROJECT)
    with pytest.raises(errors.BadInputError, match="its repository has no commit"):
        packed(repository.line("a" * 40), tmp_path / "one")
    gone = f"reward-kit @ git+file://{tmp_path}/gone@{'a' * 40}"
    with pytest.raises(errors.NetworkError, match="the repository did not answer"):
        packed(gone, tmp_path / "two")


def test_a_commit_with_submodules_is_refused(repository: Repository, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    at = inner.commit(pyproject_dot_toml=PROJECT)
    repository.commit(pyproject_dot_toml=PROJECT)
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{at},vendored")
    repository.git("commit", "--quiet", "-m", "two")
    with pytest.raises(errors.BadInputError, match=r"submodules \(vendored\)"):
        packed(repository.line(repository.git("rev-parse", "HEAD")), tmp_path / "one")


def test_every_block_of_the_gzip_file_is_stored(tmp_path: Path) -> None:
    for size in (0, 1, commit.STORED, commit.STORED + 1, 3 * commit.STORED):
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        (tmp_path / "x.gz").write_bytes(commit.gzip(data))
        unpacked = subprocess.run(["gzip", "-dc", str(tmp_path / "x.gz")], check=True, capture_output=True)
        assert unpacked.stdout == data


BACKEND = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def test_an_extension_locks_the_commits_archive_and_says_where_it_is_from(
    wheels: Small, command: Command, repository: Repository
) -> None:
    at = repository.commit(pyproject_dot_toml=PROJECT.partition("[build")[0] + BACKEND, reward_kit_dot_py="x = 1\n")
    line = repository.line(at)
    make_wheel(wheels.wheelhouse, "setuptools", "80.0", {})  # what builds the parent's, at its version
    (wheels.root / "mine.txt").write_text(f"{line}  # mine\n")
    answer = command(wheels.root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code == 0, answer.err
    lock = lockfile.load(wheels.project, "mine")
    assert lock.own == lockfile.Own(python=("reward-kit",), source=("reward-kit",))
    assert lock.stack.extends and lock.stack.extends.git == [line]
    (archive,) = (wheels.project.stacks / "mine" / "sources").iterdir()
    assert archive.name == "reward_kit-1.4.tar.gz"
    # The repository is needed no more.
    (repository.folder).rename(repository.folder.with_name("gone"))
    assert command(wheels.root, "lock", "mine", "--json").json["mine"] == {
        "changed": False, "digest": lock.digest, "findings": [],
    }  # fmt: skip
    assert extension.plain(lock.stack).sources == archive.parent


MAKER = """\
import pathlib, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "reward_kit-1.4-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        wheel.writestr("MODULE.py", "x = 1\\n")
        info = "reward_kit-1.4.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: reward-kit\\nVersion: 1.4\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


@pytest.mark.parametrize(("module", "code"), [("reward_kit", 0), ("tiny_lib", 3)])
def test_what_a_commit_builds_on_the_host_is_looked_at_too(
    wheels: Small, command: Command, repository: Repository, module: str, code: int
) -> None:
    at = repository.commit(
        pyproject_dot_toml=PROJECT.partition("[build")[0] + BACKEND, backend_dot_py=MAKER.replace("MODULE", module)
    )
    _, sha256 = make_wheel(wheels.wheelhouse, "setuptools", "80.0", {})
    wheels.edit("build.txt", "b" * 64, sha256)
    (wheels.root / "mine.txt").write_text(f"{repository.line(at)}\n")
    assert command(wheels.root, "extend", TINY, "mine.txt", "--name", "mine").code == 0
    answer = command(wheels.root, "certify", "mine", "--engine", "host")
    assert answer.code == code, answer.err
    reason = "reward_kit-1.4-py3-none-any.whl brings another tiny_lib.py than tiny_lib-1.0-py3-none-any.whl"
    assert (reason in answer.err) is (code != 0)
