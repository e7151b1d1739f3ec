"""Downloads: what is retried, what is refused, and which host is told the index's password."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from builder.base import credentials, download, errors
from builder.base.download import Downloader
from tests.commands import EVERYTHING

CONTENT = b"a wheel" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """A host on loopback that gives its answers in turn, and the last one from then on."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [content]
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append((self.command, self.path, dict(self.headers)))
                answers = server.answers
                (answers.pop(0) if len(answers) > 1 else answers[0])(self)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def url(self, path: str = "x-1.0.whl", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.http.server_port}/{path}"

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content_Length": str(len(body))} | headers).items():
        if value:
            handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(body)


def content(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, CONTENT)


def status(code: int) -> Answer:
    return lambda handler: reply(handler, code)


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, CONTENT[:100], Content_Length=str(len(CONTENT)))


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def redirect(url: str) -> Answer:
    return lambda handler: reply(handler, 302, Location=url)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "PAUSE", 0)
    server = Server()
    yield server
    server.close()


@pytest.fixture
def downloader() -> Iterator[Downloader]:
    with Downloader() as downloader:
        yield downloader


def test_a_file_is_saved_with_its_hash_and_a_report(server: Server, downloader: Downloader, tmp_path: Path) -> None:
    sizes: list[int] = []
    assert downloader.save(server.url(), tmp_path / "x", size=len(CONTENT), report=sizes.append) == SHA256
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert sizes[-1] == len(CONTENT)


@pytest.mark.parametrize("fault", [status(503), status(429), cut_short, hang_up])
def test_what_may_pass_is_retried(server: Server, downloader: Downloader, tmp_path: Path, fault: Answer) -> None:
    server.answers = [fault, fault, content]
    assert downloader.save(server.url(), tmp_path / "x") == SHA256
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert downloader.content(server.url()) == CONTENT


@pytest.mark.parametrize(
    ("fault", "retries", "requests", "reason"),
    [
        (status(404), "3", 1, "404 Not Found"),
        (status(401), "3", 1, "401 Unauthorized"),
        (status(503), "2", 3, "503 Service Unavailable"),
        (cut_short, "1", 2, "peer closed connection"),
        (hang_up, "0", 1, "Server disconnected"),
    ],
)
def test_what_does_not_pass_is_a_matter_of_the_network(
    server: Server, downloader: Downloader, monkeypatch: pytest.MonkeyPatch,
    fault: Answer, retries: str, requests: int, reason: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("UV_HTTP_RETRIES", retries)
    server.answers = [fault]
    with pytest.raises(errors.NetworkError, match=rf"x-1\.0\.whl: .*{reason}") as caught:
        downloader.content(server.url())
    assert (len(server.requests), caught.value.exit_code) == (requests, 5)
    assert caught.value.cause and caught.value.next_step


def test_nobody_who_listens_is_a_matter_of_the_network(server: Server, downloader: Downloader) -> None:
    url = server.url().replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(errors.NetworkError, match=r"x-1\.0\.whl: .*refused"):
        downloader.content(url)


def test_a_host_that_never_answers_is_given_up(
    server: Server, downloader: Downloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    leave = threading.Event()

    def silent(_: BaseHTTPRequestHandler) -> None:
        leave.wait(30)

    server.answers = [silent]
    with pytest.raises(errors.NetworkError, match="timed out"):
        downloader.content(server.url())
    leave.set()


def test_a_file_larger_than_listed_is_refused(server: Server, downloader: Downloader, tmp_path: Path) -> None:
    with pytest.raises(errors.NetworkError, match=r"x-1\.0\.whl: larger than the 7\.0 kB that were expected"):
        downloader.save(server.url(), tmp_path / "x", size=len(CONTENT) - 1)
    with pytest.raises(errors.NetworkError, match="larger than"):
        downloader.content(server.url(), len(CONTENT) - 1)
    assert len(server.requests) == 2


def test_a_size_is_what_the_host_says(server: Server, downloader: Downloader) -> None:
    assert downloader.size(server.url()) == len(CONTENT)
    server.answers = [lambda handler: reply(handler, 200, Content_Length="")]
    assert downloader.size(server.url()) is None
    server.answers = [status(404)]
    with pytest.raises(errors.NetworkError):
        downloader.size(server.url())


def test_the_bytes_are_those_of_the_file_however_the_host_packs_them(server: Server, downloader: Downloader) -> None:
    """A source distribution that a host calls gzip-encoded is not unpacked on the way."""
    server.answers = [lambda handler: reply(handler, 200, CONTENT, Content_Encoding="gzip")]
    assert downloader.content(server.url()) == CONTENT
    assert server.requests[0][2]["Accept-Encoding"] == "identity"


def test_files_of_this_machine_are_read_where_they_lie(downloader: Downloader, tmp_path: Path) -> None:
    path = tmp_path / "with a space#1.whl"
    path.write_bytes(CONTENT)
    for url in (str(path), path.as_uri()):
        assert downloader.content(url) == CONTENT
        assert downloader.save(url, tmp_path / "copy") == SHA256
    with pytest.raises(errors.NetworkError, match=r"gone\.whl: the file does not exist"):
        downloader.content(str(tmp_path / "gone.whl"))


def basic(request: tuple[str, str, dict[str, str]]) -> str | None:
    header = request[2].get("Authorization")
    return base64.b64decode(header.removeprefix("Basic ")).decode() if header else None


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://mirror.test/files/x.whl", True),
        ("https://other.test/files/x.whl", False),
        ("http://mirror.test/files/x.whl", False),
        ("https://mirror.test.evil.test/x.whl", False),
    ],
)
def test_the_password_of_the_index_goes_to_its_own_host_only(
    monkeypatch: pytest.MonkeyPatch, url: str, sent: bool
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://me:a%40b@mirror.test/simple")
    assert credentials.of(url) == (("me", "a@b") if sent else None)


def test_a_redirect_takes_the_password_to_no_other_host(
    server: Server, downloader: Downloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.url("simple").replace("://", "://me:a%40b@"))
    server.answers = [redirect(server.url("moved.whl", "localhost")), content]
    assert downloader.content(server.url()) == CONTENT
    assert [(path, basic((method, path, headers))) for method, path, headers in server.requests] == [
        ("/x-1.0.whl", "me:a@b"), ("/moved.whl", None),
    ]  # fmt: skip


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_leads_to_the_web_only(server: Server, downloader: Downloader, url: str) -> None:
    server.answers = [redirect(url)]
    with pytest.raises(errors.NetworkError):
        downloader.content(server.url())
    assert len(server.requests) == 1


def test_a_circle_of_redirects_ends(server: Server, downloader: Downloader) -> None:
    server.answers = [redirect(server.url())]
    with pytest.raises(errors.NetworkError, match="redirects"):
        downloader.content(server.url())


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense://me:secret@127.0.0.1"])
def test_a_proxy_that_cannot_be_used_is_named(
    server: Server, downloader: Downloader, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(errors.NetworkError, match="the proxy of this machine cannot be used") as caught:
        downloader.content(server.url())
    assert "ALL_PROXY" in caught.value.next_step
    assert "secret" not in str(caught.value)


def test_a_password_in_a_url_is_not_shown(server: Server, downloader: Downloader) -> None:
    server.answers = [status(404)]
    with pytest.raises(errors.NetworkError) as caught:
        downloader.content(server.url().replace("://", "://me:secret@"))
    assert "secret" not in str(caught.value)


def test_the_tool_starts_without_the_library_for_downloads() -> None:
    code = f"import sys; {EVERYTHING}; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
