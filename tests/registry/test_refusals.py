"""Registries that are down, full, read-only, locked, or no registries at all: the right words, and exit code 5."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder.base import errors
from builder.publish import registry, signing
from builder.publish.reference import Repository, parse_repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, publish, tags, verify
from tests.registry.server import free_port, serving
from tests.unit.conftest import Command


def test_a_registry_that_is_down(command: Command, certified: Stack, keys: Keys) -> None:
    host = f"127.0.0.1:{free_port()}"
    for answer in (
        publish(command, certified, f"{host}/images", keys),
        verify(command, certified, f"{host}/images:{TINY}", keys),
        command(certified.root, "use", TINY, "--registry", f"{host}/images"),
    ):
        assert answer.code == 5
        assert f"{host} does not answer" in answer.err
        assert "usual cause: the registry is down" in answer.err
        assert f"next: oras repo tags --plain-http {host}/images" in answer.err


def test_a_host_that_does_not_exist(command: Command, certified: Stack, keys: Keys) -> None:
    answer = publish(command, certified, "registry.invalid/images", keys)
    assert answer.code == 5
    assert "registry.invalid does not answer" in answer.err


def test_a_registry_that_went_down_in_between_is_finished_later(
    command: Command, certified: Stack, keys: Keys, tmp_path: Path
) -> None:
    port = free_port()
    with serving(tmp_path / "store", port=port) as host:
        repository = parse_repository(f"{host}/images", insecure=False)
        assert publish(command, certified, repository, keys).code == 0
    new = certified.another("new")
    assert publish(command, new, repository, keys).code == 5
    with serving(tmp_path / "store", port=port):
        assert tags(repository)[TINY] == certified.image
        assert publish(command, new, repository, keys).code == 0
        assert tags(repository)[TINY] == new.image


def test_a_registry_that_is_read_only(command: Command, certified: Stack, keys: Keys, tmp_path: Path) -> None:
    with serving(tmp_path / "store") as host:
        repository = parse_repository(f"{host}/images", insecure=False)
        assert publish(command, certified, repository, keys).code == 0
    new = certified.another("new")
    with serving(tmp_path / "store", read_only=True) as host:
        repository = parse_repository(f"{host}/images", insecure=False)
        answer = publish(command, new, repository, keys)
        assert answer.code == 5
        assert f"{host}: the registry is read-only" in answer.err
        assert tags(repository)[TINY] == certified.image
        assert verify(command, certified, f"{repository}:{TINY}", keys).code == 0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_registry_whose_disk_is_full(command: Command, certified: Stack, keys: Keys, tiny_disk: Path) -> None:
    with serving(tiny_disk / "store") as host:
        repository = parse_repository(f"{host}/images", insecure=False)
        assert publish(command, certified, repository, keys).code == 0
        new = certified.another("new")
        filled = tiny_disk / "filled"
        with pytest.raises(OSError, match="No space left"):
            filled.write_bytes(b"0" * 600_000)
        answer = publish(command, new, repository, keys)
        assert answer.code == 5
        assert f"{host}: the registry's disk is full" in answer.err
        assert tags(repository)[TINY] == certified.image
        filled.unlink()
        assert publish(command, new, repository, keys).code == 0
        assert tags(repository)[TINY] == new.image


def test_the_disk_of_this_machine_is_full(
    command: Command, certified: Stack, repository: Repository, keys: Keys, tiny_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert publish(command, certified, repository, keys).code == 0
    with pytest.raises(OSError, match="No space left"):
        (tiny_disk / "filled").write_bytes(b"0" * 600_000)
    with pytest.raises(errors.StorageError, match="no space left on this machine's disk"):
        registry.save(repository, certified.image, tiny_disk / "layout")
    monkeypatch.setattr("tempfile.tempdir", str(tiny_disk))
    answer = verify(command, certified, f"{repository}:{TINY}", keys)
    assert answer.code == 6
    assert "no space left on this machine's disk" in answer.err
    assert "registry" not in answer.err
    with pytest.raises(errors.StorageError, match="no space left on this machine's disk"):
        signing.sign(b"{}", str(keys.private), _full(certified.small.scratch(), tiny_disk))


def _full(folder: Path, disk: Path) -> Path:
    """A folder in which the signature falls on a full disk."""
    (folder / "signature").symlink_to(disk / "signature")
    return folder


def test_nobody_has_a_home(
    command: Command, certified: Stack, repository: Repository, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for answer in (
        publish(command, certified, repository, keys),
        verify(command, certified, f"{repository}:{TINY}", keys),
    ):
        assert answer.code == 3
        assert "HOME is not set" in answer.err
        assert "next: export HOME=" in answer.err


# --- what is no registry -------------------------------------------------------------------------------------------

ESCAPE = "\x1b[31m"
PAGES = {
    "a page for everything": (200, "text/html", f"<html>{ESCAPE}welcome to the hotel</html>"),
    "JSON of something else": (200, "application/json", '{"status": "fine", "layers": 7, "digest": ["sha256:"]}'),
    "deep JSON": (200, "application/json", "[" * 100_000),
    "a teapot": (418, "application/json", '{"errors": 7}'),
    "nothing": (204, "text/plain", ""),
}


@contextmanager
def answering(code: int, kind: str, page: str, headers: tuple[tuple[str, str], ...] = ()) -> Iterator[str]:
    """A web server that gives one answer to everything; yields its host."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            for name, value in (("Content-Type", kind), ("Content-Length", str(len(page))), *headers):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.encode())

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


DIGEST = ("Docker-Content-Digest", "sha256:" + "1" * 64)


@pytest.mark.parametrize("headers", [(), (DIGEST,)], ids=["plain", "with a digest"])
@pytest.mark.parametrize("page", PAGES)
def test_what_is_no_registry_is_told_and_never_believed(
    command: Command, certified: Stack, keys: Keys, page: str, headers: tuple[tuple[str, str], ...]
) -> None:
    with answering(*PAGES[page], headers) as host:
        for answer in (
            publish(command, certified, f"{host}/images", keys),
            verify(command, certified, f"{host}/images:{TINY}", keys),
            verify(command, certified, f"{host}/images@{certified.image}", keys),
        ):
            assert answer.code == 5, answer.out
            assert f"{host}: not a registry's answer" in answer.err
            assert ESCAPE not in answer.err + answer.out


def test_a_registry_that_fails(command: Command, certified: Stack, keys: Keys) -> None:
    with answering(500, "text/plain", "oops") as host:
        answer = verify(command, certified, f"{host}/images:{TINY}", keys)
    assert answer.code == 5
    assert f"{host}: the registry fails" in answer.err


def test_a_registry_that_sends_what_never_ends_is_not_read_into_memory() -> None:
    with answering(200, "application/octet-stream", "0" * 3_000_000) as host:
        repository = parse_repository(f"{host}/images", insecure=False)
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(errors.NetworkError, match="where a small file was asked for"),
        ):
            patch.setattr(registry, "LARGEST", 1_000_000)
            registry.manifest(repository, "tag")
