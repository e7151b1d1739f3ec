"""A server that speaks the Hub's protocol as far as huggingface_hub and datasets need it, and counts what it hands out.

Large files are redirected, as the Hub's are, to a host of their own.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".jsonl")  # files that are redirected
KIND = r"(?P<kind>models|datasets)"
NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
INFO = re.compile(rf"/api/{KIND}/{NAME}(?:/revision/[^/]+)?")
TREE = re.compile(rf"/api/{KIND}/{NAME}/tree/[^/]+(?P<path>(?:/.+)?)")
PATHS = re.compile(rf"/api/{KIND}/{NAME}/paths-info/[^/]+")
FILE = re.compile(rf"/(?:(?P<kind>datasets)/)?{NAME}/resolve/[^/]+/(?P<path>.+)")
STORED = re.compile(rf"/stored/{KIND}/{NAME}/(?P<path>.+)")


@dataclass
class Hub:
    """Repositories by their names, such as "models/team/tiny", each a folder; and the bytes of files handed out."""

    repositories: Mapping[str, Path]
    storage: str = "localhost"  # the name of the host of large files
    scheme: str = "http"
    port: int = 0
    downloads: list[tuple[str, int]] = field(default_factory=list)

    @property
    def downloaded(self) -> int:
        return sum(size for _, size in self.downloads)


def authority(folder: Path, *hosts: str) -> tuple[Path, Path]:
    """The certificate of an authority that nobody knows, and a file with a key and a certificate of these hosts."""
    names = ",".join(f"DNS:{host}" for host in hosts)
    ca, both = folder / "ca.crt", folder / "server.pem"
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    signed = ["-CA", str(ca), "-CAkey", str(folder / "ca.key"), "-addext", f"subjectAltName={names}"]
    for argv in (
        [*new, "-subj", "/CN=authority of a company", "-keyout", str(folder / "ca.key"), "-out", str(ca)],
        [*new, "-subj", f"/CN={hosts[0]}", *signed, "-addext", "basicConstraints=critical,CA:FALSE",
         "-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")],
    ):  # fmt: skip
        subprocess.run(argv, check=True, capture_output=True)
    both.write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())
    return ca, both


@contextmanager
def serving(
    repositories: Mapping[str, Path], address: str, storage: str, certificate: Path | None = None
) -> Iterator[Hub]:
    """Serve on a free port of an address, over TLS if there is a certificate, until the end of the block."""
    hub = Hub(repositories, storage, "https" if certificate else "http")
    handler = type("Bound", (Handler,), {"hub": hub})
    with ThreadingHTTPServer((address, 0), handler) as server:
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        hub.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def answer(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        for pattern, answer in (
            (TREE, self.tree),
            (PATHS, self.paths),
            (INFO, self.info),
            (FILE, self.file),
            (STORED, self.stored),
        ):
            if match := pattern.fullmatch(path):
                folder = self.hub.repositories.get(f"{match['kind'] or 'models'}/{match['name']}")
                if folder is None:
                    self.refuse("RepoNotFound")
                else:
                    answer(match, folder, body)
                return
        self.refuse("EntryNotFound")

    def info(self, match: re.Match[str], folder: Path, _: bytes) -> None:
        siblings = [{"rfilename": entry["path"]} for entry in entries(folder) if entry["type"] == "file"]
        self.json(
            {
                "id": match["name"], "sha": commit(folder), "private": False, "gated": False, "disabled": False,
                "downloads": 0, "likes": 0, "tags": [], "siblings": siblings,
                "createdAt": "2026-01-01T00:00:00.000Z", "lastModified": "2026-01-01T00:00:00.000Z",
            }
        )  # fmt: skip

    def tree(self, match: re.Match[str], folder: Path, _: bytes) -> None:
        below = match["path"].strip("/")
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() in ("true", "1")
        prefix = f"{below}/" if below else ""
        listed = [entry for entry in entries(folder) if entry["path"].startswith(prefix)]
        if below and not listed:
            self.refuse("EntryNotFound", commit(folder))
            return
        self.json([entry for entry in listed if recursive or "/" not in entry["path"][len(prefix) :]])

    def paths(self, _: re.Match[str], folder: Path, body: bytes) -> None:
        try:
            paths = json.loads(body)["paths"]
        except ValueError:
            paths = parse_qs(body.decode()).get("paths", [])
        self.json([entry for entry in entries(folder) if entry["path"] in paths])

    def file(self, match: re.Match[str], folder: Path, _: bytes) -> None:
        path = folder / match["path"]
        if not path.is_file():
            self.refuse("EntryNotFound", commit(folder))
            return
        data = path.read_bytes()
        headers = {"X-Repo-Commit": commit(folder), "ETag": f'"{identity(path)}"'}
        if path.suffix in LARGE:
            place = f"{match['kind'] or 'models'}/{match['name']}/{match['path']}"
            headers |= {
                "X-Linked-Etag": f'"{identity(path)}"', "X-Linked-Size": str(len(data)),
                "Location": f"{self.hub.scheme}://{self.hub.storage}:{self.hub.port}/stored/{place}",
            }  # fmt: skip
            self.send(HTTPStatus.FOUND, b"", headers)
        else:
            self.send(HTTPStatus.OK, data, headers)
            self.count(match["path"], data)

    def stored(self, match: re.Match[str], folder: Path, _: bytes) -> None:
        data = (folder / match["path"]).read_bytes()
        self.send(HTTPStatus.OK, data, {"ETag": f'"{identity(folder / match["path"])}"'})
        self.count(match["path"], data)

    def count(self, name: str, data: bytes) -> None:
        if self.command == "GET":
            self.hub.downloads.append((name, len(data)))

    def refuse(self, code: str, revision: str = "") -> None:
        self.send(
            HTTPStatus.NOT_FOUND, b"", {"X-Error-Code": code, **({"X-Repo-Commit": revision} if revision else {})}
        )

    def json(self, document: Any) -> None:
        self.send(HTTPStatus.OK, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def send(self, status: HTTPStatus, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""


def entries(folder: Path) -> list[dict[str, Any]]:
    """The files and folders of a repository, as the Hub lists them."""
    listed: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            listed.append({"type": "directory", "path": name, "oid": "0" * 40, "size": 0})
            continue
        entry = {"type": "file", "path": name, "oid": identity(path)[:40], "size": path.stat().st_size}
        if path.suffix in LARGE:
            entry["lfs"] = {"oid": identity(path), "size": path.stat().st_size, "pointerSize": 130}
        listed.append(entry)
    return listed


def identity(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit(folder: Path) -> str:
    """A commit hash that changes with any file."""
    files = "".join(identity(path) for path in sorted(folder.rglob("*")) if path.is_file())
    return hashlib.sha256(files.encode()).hexdigest()[:40]
