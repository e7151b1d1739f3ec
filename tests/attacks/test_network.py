"""A network that is not as open as a developer's: what is fetched goes through the proxy that the machine names."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from builder.base import environment, errors
from builder.base.project import Project
from builder.lock import archives
from builder.lock.index import File

CONTENT = b"a wheel"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = "http://files.invalid/tiny-1.0-py3-none-any.whl"  # a host that nobody can resolve


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A proxy on loopback; yields the URLs that were requested."""
    urls: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            urls.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    yield urls
    server.shutdown()
    thread.join()
    server.server_close()


def file(sha256: str = SHA256) -> File:
    return File("tiny", "1.0", "tiny-1.0-py3-none-any.whl", URL, sha256)


def test_a_build_behind_a_proxy_reaches_no_index(proxy: list[str], tmp_path: Path) -> None:
    """The image's build did not get the proxy; now the tool fetches all files, and no build step does."""
    paths = archives.download(Project(tmp_path), tmp_path, [file()], lambda _: None)
    assert [path.read_bytes() for path in paths.values()] == [CONTENT]
    assert proxy == [URL]


def test_a_proxy_serves_other_bytes(proxy: list[str], tmp_path: Path) -> None:
    """The served files are hashed before they are kept."""
    with pytest.raises(errors.NetworkError, match="is not the locked one"):
        archives.download(Project(tmp_path), tmp_path, [file("0" * 64)], lambda _: None)
    assert proxy == [URL]
    assert list((tmp_path / ".vetted").rglob("*.whl")) == []


@pytest.mark.parametrize("program", ["uv", "apt-get", "docker", "oras", "cosign"])
def test_a_program_that_fetches_is_not_told_of_the_proxy(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """The allow-list passes proxies and authorities only to programs that fetch."""
    for name in ("HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "x")
        assert environment.of(f"/usr/bin/{program}")[name] == "x"
        assert name not in environment.of("/opt/venv/bin/python")
