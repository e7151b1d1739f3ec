"""Downloads over HTTP; a path or a file:// URL is read where it lies.

The environment configures them as it does uv: proxies (HTTPS_PROXY, NO_PROXY), certificate authorities (SSL_CERT_FILE,
else those of the system), UV_HTTP_TIMEOUT in seconds and UV_HTTP_RETRIES.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import unquote, urlsplit

from builder.base import credentials, errors, quantities

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CHUNK = 1 << 20
CONNECT = 20.0  # seconds
LARGEST = 1 << 28  # bytes that are kept in memory where the size is not known
TRANSIENT = {408, 429, 500, 502, 503, 504}  # the same request may succeed later
PAUSE = 0.5  # seconds before the first retry; before each further one, twice as many


class Downloader:
    """HTTP connections that threads may share. A `with` block closes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()

    def save(
        self, url: str, target: Path, *, size: int | None = None, report: Callable[[int], None] = lambda _: None
    ) -> str:
        """Write a file and return its SHA-256 in hex digits. `report` is called with the number of bytes so far.

        `size` is the number of bytes that the index lists: a longer file is refused. Raises NetworkError.
        """

        def attempt() -> str:
            digest, done = hashlib.sha256(), 0
            with target.open("wb") as file:
                for chunk in self._chunks(url, size):
                    digest.update(chunk)
                    file.write(chunk)
                    done += len(chunk)
                    report(done)
            return digest.hexdigest()

        return self._retried(url, attempt)

    def content(self, url: str, size: int | None = None) -> bytes:
        """The bytes of a file; at most `size`, or LARGEST where that is not known. Raises NetworkError."""
        return self._retried(url, lambda: b"".join(self._chunks(url, LARGEST if size is None else size)))

    def size(self, url: str) -> int | None:
        """The number of bytes of a remote file; None where its host does not say. Raises NetworkError."""

        def attempt() -> int | None:
            answer = self._open().request("HEAD", url, auth=credentials.of(url))
            answer.raise_for_status()
            length = answer.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None

        return self._retried(url, attempt)

    def _open(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = _client()
            return self._client

    def _chunks(self, url: str, most: int | None) -> Iterator[bytes]:
        done = 0
        for chunk in _local(url) if is_local(url) else self._remote(url):
            done += len(chunk)
            if most is not None and done > most:
                raise errors.NetworkError(
                    f"{_filename(url)}: larger than the {quantities.size(most)} that were expected",
                    cause="the index serves another file than the one that it lists",
                    next_step="run this again; then vetted lock --check",
                )
            yield chunk

    def _remote(self, url: str) -> Iterator[bytes]:
        with self._open().stream("GET", url, auth=credentials.of(url)) as answer:
            answer.raise_for_status()
            yield from answer.iter_raw(CHUNK)

    def _retried(self, url: str, attempt: Callable[[], T]) -> T:
        if is_local(url):
            try:
                return attempt()
            except FileNotFoundError as error:
                raise _failed(url, "the file does not exist") from error
            except IsADirectoryError as error:
                raise _failed(url, "a folder, and no file") from error
        import httpx

        retries, number = _setting("UV_HTTP_RETRIES", 3), 0
        while True:
            try:
                return attempt()
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if number >= retries or not _is_transient(error):
                    raise _explained(url, error) from error
            time.sleep(PAUSE * 2**number)
            number += 1


def is_local(url: str) -> bool:
    """Does a path or URL lead to a file on this machine?"""
    return "://" not in url or url.startswith("file:")


def _client() -> httpx.Client:
    import httpx  # this takes a quarter of a second, and most commands download nothing

    timeout = float(_setting("UV_HTTP_TIMEOUT", 60))
    try:
        return httpx.Client(
            follow_redirects=True,
            # Not compressed: the locked hash is that of the file as it is.
            headers={"Accept-Encoding": "identity", "User-Agent": "vetted"},
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT)),
            verify=ssl.create_default_context(),  # the system's authorities, or those of SSL_CERT_FILE
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise errors.NetworkError(
            "the proxy of this machine cannot be used",
            cause="HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is not the URL of an HTTP proxy",
            next_step="set HTTPS_PROXY to http://HOST:PORT and unset ALL_PROXY, then run this again",
        ) from error


def _local(url: str) -> Iterator[bytes]:
    path = unquote(urlsplit(url).path) if url.startswith("file:") else url
    # Without O_NONBLOCK, opening a named pipe waits until another process writes to it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _failed(url, "a folder, a pipe or a device, and no file")
        while chunk := file.read(CHUNK):
            yield chunk


def _setting(name: str, default: int) -> int:
    """A number from the environment that uv reads as well."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else default


def _filename(url: str) -> str:
    """The last part of a URL: the rest may hold a password."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _is_transient(error: Exception) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in TRANSIENT
    return isinstance(error, httpx.TransportError) and not (
        isinstance(error, httpx.UnsupportedProtocol) or _is_distrust(error)
    )


def _is_distrust(error: Exception) -> bool:
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def _explained(url: str, error: Exception) -> errors.NetworkError:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):  # its own text has the whole URL
        return _failed(url, f"{error.response.status_code} {error.response.reason_phrase}".strip())
    if _is_distrust(error):
        return errors.NetworkError(
            f"{_filename(url)}: {error}",
            cause="a proxy or mirror whose certificate authority this machine does not trust",
            next_step="set SSL_CERT_FILE to the authority's bundle, then run this again",
        )
    return _failed(url, str(error) or type(error).__name__)


def _failed(url: str, reason: str) -> errors.NetworkError:
    return errors.NetworkError(
        f"{_filename(url)}: {reason}",
        cause="the index lists the file, but its host did not answer, or the connection broke",
        next_step="run this again: complete downloads are kept",
    )
