"""Attacks on the passwords of private indexes: whoever reads what a command leaves behind must not find one."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.download import Downloader
from builder.image import context, rootfs
from builder.lock import commit, lockfile, requirements
from builder.upgrade import mainline
from tests import parts
from tests.conftest import ROOT, TINY, Small, make_wheel
from tests.localhost import Response, Server
from tests.unit.conftest import Command
from tests.unit.lock.test_commit import Repository

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
    """A repository's .gitattributes names filters; it also leaves files out, or writes into them."""
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
    archive = commit.archive(pinned, tmp_path / "sources", tmp_path / "scratch")
    assert not (tmp_path / "ran").exists()
    with tarfile.open(archive) as packed:
        file = packed.extractfile("kit-1.0/secret.txt")
        assert file and file.read() == b"$Format:%H$\n"


def test_a_file_on_another_port_of_the_indexs_host_asks_for_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of that machine listens there, and another index lists a file with such an address."""

    class Thief(Server):
        def respond(self, path: str, headers: Mapping[str, str]) -> Response:
            seen.append(headers.get("Authorization"))
            return Response(200, path.encode())

    seen: list[str | None] = []
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    index, thief = Thief(), Thief()
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.root.replace('://', '://me:planted-secret-one@')}/simple")
    with Downloader() as downloader:
        for server in (thief, index):
            downloader.content(f"{server.root}/simple/x.whl")
            server.close()
    assert (seen[0], bool(seen[1])) == (None, True)


@pytest.mark.parametrize("user", ["planted-secret-one", "me:planted-secret-one", "me:planted@secret-one"])
def test_the_token_of_a_main_branch_is_in_its_address(user: str) -> None:
    """`vetted watch --main` gives git the address as an argument, which every user of the machine may read."""
    with pytest.raises(errors.BadInputError, match="every user of this machine could read it") as refused:
        mainline.parse(f"trl=https://{user}@host.test/trl")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("version", ["1.0/../../../out", "1.0\\n", "", "/1.0", "-1.0"])
def test_the_version_of_a_commit_is_a_path(tmp_path: Path, version: str) -> None:
    """The archive of the commit is named after what its pyproject.toml says, and so is each file in it."""
    repository = Repository(tmp_path / "kit")
    at = repository.commit(pyproject_dot_toml=f'[project]\nname = "kit"\nversion = "{version}"\n')
    (tmp_path / "scratch").mkdir()
    with pytest.raises(errors.BadInputError, match="which is no version"):
        commit.archive(requirements.Commit(repository.line(at, "kit")), tmp_path / "sources", tmp_path / "scratch")
    assert not (tmp_path / "sources").exists()


PYTHON = """\
#!/bin/sh
case "$*" in
    "-P -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && cp "$0" "$4/bin/uv" ;;
    *--require-hashes*--requirement*/requirements.txt) echo "uv: $UV_DEFAULT_INDEX" >> "$LOG" ;;
esac
"""


def test_the_password_of_an_index_is_read_in_the_list_of_processes(tmp_path: Path) -> None:
    """`./vetted` makes its environment with uv: the index's address once was an argument of `env`."""
    log = tmp_path / "log"
    shutil.copy2(ROOT / "vetted", tmp_path / "vetted")
    (tmp_path / "requirements.txt").write_text("uv==1 \\\n    --hash=sha256:0\n")
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("python3.11", PYTHON),
        ("env", '#!/bin/sh\necho "env: $*" >> "$LOG"; exec /usr/bin/env "$@"\n'),
    ):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    url = "https://me:planted-secret-one@host.test/simple"
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "LOG": str(log), "UV_DEFAULT_INDEX": url}
    subprocess.run([str(tmp_path / "vetted"), "list"], env=env, check=True, capture_output=True)
    assert log.read_text() == f"uv: {url}\n"
