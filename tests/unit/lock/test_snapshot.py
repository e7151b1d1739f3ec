"""The archive of all Debian packages: what the mirror replaced comes from there, with the locked bytes or never."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from builder.base import errors
from tests.conftest import Small
from tests.unit.lock.mirror import DEB, NAME, VERSION, fetch, setting


class Archive(BaseHTTPRequestHandler):
    """The archive of all packages: its answer about one of them, and the bytes of its files."""

    protocol_version = "HTTP/1.0"
    files: ClassVar[list[dict[str, str]]] = []
    content: ClassVar[bytes] = DEB
    other: ClassVar[str] = ""  # the path of a file with other bytes
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = self.content if self.path.startswith("/file/") else json.dumps({"result": self.files}).encode()
        body = b"of another build" if self.path == self.other else body
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def archive(mirror: Small, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Archive]]:
    """A mirror that no longer has the locked version, and an archive that has."""
    setting(mirror, "OFFERED", "1:2.38.1-5+deb12u4")

    class Own(Archive):
        files: ClassVar[list[dict[str, str]]] = [
            {"architecture": "arm64", "hash": "a" * 40},
            {"architecture": "amd64", "hash": "b" * 40},
        ]
        paths: ClassVar[list[str]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("VETTED_DEBIAN_SNAPSHOT", f"http://127.0.0.1:{server.server_port}/")
        yield Own
        server.shutdown()
        thread.join()


def test_a_superseded_package_comes_from_the_archive_of_all_packages(mirror: Small, archive: type[Archive]) -> None:
    assert fetch(mirror)[NAME].read_bytes() == DEB
    assert archive.paths == [f"/mr/binary/{NAME}/1%3A2.38.1-5%2Bdeb12u3/binfiles", f"/file/{'b' * 40}"]


def test_a_package_for_all_architectures_comes_from_the_archive(mirror: Small, archive: type[Archive]) -> None:
    archive.files[:] = [{"architecture": "all", "hash": "c" * 40}]
    assert fetch(mirror)[NAME].read_bytes() == DEB
    assert archive.paths[-1] == f"/file/{'c' * 40}"


def test_what_the_mirror_has_is_not_asked_of_the_archive(mirror: Small, archive: type[Archive]) -> None:
    setting(mirror, "OFFERED", VERSION)
    assert fetch(mirror)[NAME].read_bytes() == DEB
    assert archive.paths == []


def test_other_bytes_from_the_archive_are_refused(mirror: Small, archive: type[Archive]) -> None:
    archive.content = b"other bytes"
    with pytest.raises(errors.NetworkError, match="for amd64 with the locked hash"):
        fetch(mirror)
    assert list((mirror.project.state / "debs").iterdir()) == []


def test_of_several_files_the_one_with_the_locked_hash_is_taken(mirror: Small, archive: type[Archive]) -> None:
    archive.files.insert(0, {"architecture": "all", "hash": "d" * 40})
    archive.other = f"/file/{'d' * 40}"
    assert fetch(mirror)[NAME].read_bytes() == DEB
    assert archive.paths[1:] == [archive.other, f"/file/{'b' * 40}"]


def test_the_password_of_an_archive_is_not_shown(mirror: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    setting(mirror, "OFFERED", "1:2.38.1-5+deb12u4")
    monkeypatch.setenv("VETTED_DEBIAN_SNAPSHOT", "http://somebody:planted@127.0.0.1:9/debian")
    with pytest.raises(errors.NetworkError) as caught:
        fetch(mirror)
    assert "http://127.0.0.1:9/debian was asked" in caught.value.what
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], f"it has no {NAME} {VERSION} for amd64"),
        ([{"architecture": "arm64", "hash": "a" * 40}], f"it has no {NAME} {VERSION} for amd64"),
        ([{"architecture": "amd64", "hash": "../../etc"}], f"it has no {NAME} {VERSION} for amd64"),
        ([{"architecture": "amd64"}], "it gave no answer that can be read"),
    ],
)
def test_an_archive_without_the_file_is_named_with_the_package(
    mirror: Small, archive: type[Archive], files: list[dict[str, str]], reason: str
) -> None:
    archive.files[:] = files
    with pytest.raises(errors.NetworkError, match="no longer has") as caught:
        fetch(mirror)
    assert reason in caught.value.what
    assert "vetted lock --upgrade debian" in caught.value.next_step
