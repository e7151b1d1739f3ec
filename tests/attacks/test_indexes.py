"""Attacks on the passwords of private indexes: whoever reads what a command leaves behind must not find one."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from builder.image import context, rootfs
from builder.lock import lockfile
from tests import parts
from tests.conftest import TINY, Small, make_wheel
from tests.localhost import Response, Server
from tests.unit.conftest import Command

USERS = {"one": "planted-secret-one", "two": "planted-secret-two"}


class Indexes(Server):
    """Two private indexes with a password each, and a public one without a package."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.refused = folder, 0
        self.served: set[str] = set()  # whose files
        super().__init__()

    def respond(self, path: str, headers: Mapping[str, str]) -> Response:
        user, _, path = path.partition("/")
        login = base64.b64encode(f"{user}:{USERS[user]}".encode()).decode() if user in USERS else ""
        if login and headers.get("Authorization") != f"Basic {login}":
            self.refused += 1
            return Response(401, headers={"WWW-Authenticate": 'Basic realm="packages"'})
        folder, name, *_ = [*path.split("/"), ""]
        if folder == "files" and (self.folder / user / name).is_file():
            self.served.add(user)
            return Response(200, (self.folder / user / name).read_bytes())
        wheels = sorted((self.folder / user).glob(f"{name.replace('-', '_')}-*.whl"))
        links = "\n".join(f'<a href="/{user}/files/{file.name}">{file.name}</a>' for file in wheels)
        return Response(200 if links else 404, links.encode(), {"Content-Type": "text/html"})

    def url(self, user: str) -> str:
        return f"{self.root}/{user}/simple"


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Indexes]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    make_wheel(tmp_path / "one", "rewards-one", "1.0", {"rewards_one.py": ""})
    make_wheel(tmp_path / "two", "rewards-two", "1.0", {"rewards_two.py": ""})
    served = Indexes(tmp_path)
    monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("public"))
    monkeypatch.setenv("UV_INDEX", " ".join(f"{name}={served.url(name)}" for name in USERS))
    for name, password in USERS.items():
        monkeypatch.setenv(f"UV_INDEX_{name.upper()}_USERNAME", name)
        monkeypatch.setenv(f"UV_INDEX_{name.upper()}_PASSWORD", password)
    yield served
    served.close()


def leaks(*folders: Path) -> list[Path]:
    """Every file that has a password in it, as it is or encoded as a header has it."""
    needles = [password.encode() for password in USERS.values()]
    needles += [base64.b64encode(f"{user}:{password}".encode()) for user, password in USERS.items()]
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if any(needle in path.read_bytes() for needle in needles)]


def test_the_passwords_of_two_indexes_are_looked_for_in_all_that_a_build_leaves(
    wheels: Small, command: Command, indexes: Indexes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index's password was once in the lock's URLs, in build contexts and in logs of other tools."""
    root = wheels.root
    (root / "mine.txt").write_text("rewards-one\nrewards-two\n")
    answer = command(root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code == 0, answer.err
    output = answer.out + answer.err
    output += "".join(
        f"{each.out}{each.err}" for each in (command(root, "lock", "mine", "--check"), command(root, "list"))
    )
    (tmp_path / "rootfs.tar").touch()
    monkeypatch.setattr(rootfs, "make", lambda *_, **__: tmp_path / "rootfs.tar")
    lock = lockfile.load(wheels.project, "mine")
    folder = context.make(wheels.project, lock, wheels.scratch(), lambda _: None, fresh=False)
    assert {path.name for path in (folder / "wheels" / "own").iterdir()} == {
        "rewards_one-1.0-py3-none-any.whl", "rewards_two-1.0-py3-none-any.whl",
    }  # fmt: skip
    certified = command(root, "certify", "mine", "--engine", "host")
    assert certified.code == 0, certified.err
    assert indexes.served == set(USERS)
    assert leaks(root, tmp_path / "uv-cache") == []
    assert not any(password in output + certified.out + certified.err for password in USERS.values())


def test_a_wrong_password_is_looked_for_in_what_the_refusal_says(
    wheels: Small, command: Command, indexes: Indexes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools print the requested URL with the password in it."""
    secret = "planted-secret-wrong"
    monkeypatch.setenv("UV_INDEX", f"one={indexes.url('one').replace('://', f'://one:{secret}@')}")
    monkeypatch.delenv("UV_INDEX_ONE_PASSWORD")
    (wheels.root / "mine.txt").write_text("rewards-one\n")
    answer = command(wheels.root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code in (3, 5)
    assert indexes.refused > 0
    assert secret not in answer.out + answer.err
    files = [path for path in (*wheels.root.rglob("*"), *(tmp_path / "uv-cache").rglob("*")) if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_a_repositorys_token_is_written_into_the_stack(wheels: Small, command: Command) -> None:
    """A token in an address would be committed with stack.toml; git has other ways to log in."""
    (wheels.root / "mine.txt").write_text(f"kit @ git+https://planted-secret-one@host.test/kit@{'a' * 40}\n")
    answer = command(wheels.root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code == 3 and "planted-secret" not in answer.err
    (wheels.root / "mine.txt").unlink()
    assert leaks(wheels.root) == []


def test_the_attributes_of_a_commit_run_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository's .gitattributes names filters, and its configuration is not the user's."""
    from builder.lock import commit, requirements

    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(f'[filter "run"]\n\tsmudge = touch {tmp_path}/ran\n\tclean = cat\n')
    repository = tmp_path / "kit"
    repository.mkdir()
    (repository / ".gitattributes").write_text("* filter=run export-subst\nsecret.txt export-ignore\n")
    (repository / "pyproject.toml").write_text('[project]\nname = "kit"\nversion = "1.0"\n')
    (repository / "secret.txt").write_text("$Format:%H$\n")
    git = [
        parts.git(),
        "-C",
        str(repository),
        "-c",
        "user.name=me",
        "-c",
        "user.email=me@host.test",
        "-c",
        "filter.run.clean=",
    ]
    for argv in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *argv], check=True, env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"})
    commit_hash = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    pinned = requirements.Commit(f"kit @ git+file://{repository}@{commit_hash}")
    (tmp_path / "ran").unlink(missing_ok=True)
    (tmp_path / "scratch").mkdir()
    commit.archive(pinned, tmp_path / "sources", tmp_path / "scratch")
    assert not (tmp_path / "ran").exists()
