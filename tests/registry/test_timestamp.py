"""`publish --timestamp-server`: a real RFC 3161 server stamps the image's signature, and cosign checks the stamp."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.publish import registry, signature, timestamp
from builder.publish.reference import Repository
from tests.conftest import ROOT, TINY
from tests.registry.conftest import Keys, Stack, publish, tags, verify
from tests.registry.server import free_port, serving
from tests.unit.conftest import Command

(CHECK,) = re.findall(
    r"<!-- run by tests/registry/test_timestamp\.py -->\n```sh\n(.*?)```",
    (ROOT / "docs" / "how-to" / "publish.md").read_text(encoding="utf-8"),
    re.DOTALL,
)
TSA = """\
[tsa]
default_tsa = this
[this]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
"""
OF_A_TSA = "basicConstraints=CA:false\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=critical,timeStamping\n"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(folder: Path, *argv: str) -> bytes:
    done = subprocess.run(["openssl", *argv], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_authority(folder: Path) -> Path:
    """A CA, a timestamp server's certificate from it, and both in chain.pem."""
    folder.mkdir()
    openssl(
        folder, "req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=CA",
        "-addext", "keyUsage=critical,keyCertSign",
    )  # fmt: skip
    openssl(folder, "req", *NEW_KEY, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=TSA")
    (folder / "extensions").write_text(OF_A_TSA)
    openssl(
        folder, "x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "extensions", "-out", "tsa.pem",
    )  # fmt: skip
    (folder / "chain.pem").write_bytes((folder / "tsa.pem").read_bytes() + (folder / "ca.pem").read_bytes())
    (folder / "tsa.cnf").write_text(TSA.format(folder=folder))
    (folder / "serial").write_text("01\n")
    return folder


@dataclass
class Server:
    """`answers`: what it sends in place of a timestamp, with the status; `queries`: every request."""

    url: str
    chain: Path
    queries: list[bytes]
    answers: tuple[int, bytes] | None = None


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_authority(tmp_path_factory.mktemp("tsa") / "ours")


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_authority(tmp_path_factory.mktemp("tsa") / "theirs")


def reply(authority: Path, query: bytes) -> bytes:
    (authority / "query").write_bytes(query)
    return openssl(authority, "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query")


@pytest.fixture
def server(authority: Path) -> Iterator[Server]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            served.queries.append(query)
            status, body = served.answers or (200, reply(authority, query))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        served = Server(f"http://127.0.0.1:{listening.server_port}/tsr", authority / "chain.pem", [])
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        listening.shutdown()
        thread.join()


def checked(repository: Repository, image: str, keys: Keys, chain: Path, folder: Path) -> int:
    """The exit code of the commands in docs/how-to/publish.md; cosign speaks plain HTTP to localhost by itself."""
    folder.mkdir()
    (folder / "cosign.pub").symlink_to(keys.public)
    (folder / "chain.pem").symlink_to(chain)
    name = f"{str(repository).replace('127.0.0.1', 'localhost')}@{image}"
    script = f"IMAGE={name}\n{CHECK}"
    return subprocess.run(["sh", "-euc", script], cwd=folder, capture_output=True, check=False).returncode


def signatures(repository: Repository, image: str) -> list[bool]:
    """Of every signature of the image, whether it has a timestamp."""
    content = registry.manifest(repository, signature.tag(image))
    assert content is not None
    return [timestamp.TIMESTAMP in layer["annotations"] for layer in json.loads(content)["layers"]]


def test_cosign_accepts_the_timestamp_under_its_chain_and_no_other(
    command: Command, certified: Stack, repository: Repository, keys: Keys, server: Server, other_authority: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    done = publish(command, certified, repository, keys, "--timestamp-server", server.url)
    assert done.code == 0, done.err
    assert "signed with the key and a timestamp" in done.err
    assert (len(server.queries), signatures(repository, certified.image)) == (1, [True])
    assert checked(repository, certified.image, keys, server.chain, tmp_path / "ours") == 0
    assert checked(repository, certified.image, keys, other_authority / "chain.pem", tmp_path / "theirs") != 0
    assert (tmp_path / "theirs" / "signatures.json").read_text() == ""  # cosign itself refused
    assert verify(command, certified, f"{repository}:{TINY}", keys).code == 0


def test_a_second_publish_asks_no_server_and_signs_nothing(
    command: Command, certified: Stack, repository: Repository, keys: Keys, server: Server
) -> None:
    publish(command, certified, repository, keys, "--timestamp-server", server.url)
    for more in (["--timestamp-server", server.url], []):
        again = publish(command, certified, repository, keys, "--json", *more)
        assert (again.code, again.json["changed"]) == (0, False)
    assert (len(server.queries), signatures(repository, certified.image)) == (1, [True])


def test_without_the_option_there_is_no_timestamp_and_with_it_one_is_added(
    command: Command, certified: Stack, repository: Repository, keys: Keys, server: Server, tmp_path: Path
) -> None:
    publish(command, certified, repository, keys)
    assert signatures(repository, certified.image) == [False]
    assert checked(repository, certified.image, keys, server.chain, tmp_path / "before") == 1  # grep's
    assert "docker-manifest-digest" in (tmp_path / "before" / "signatures.json").read_text()
    done = publish(command, certified, repository, keys, "--json", "--timestamp-server", server.url)
    assert (done.code, done.json["changed"]) == (0, True)
    assert signatures(repository, certified.image) == [False, True]
    assert checked(repository, certified.image, keys, server.chain, tmp_path / "after") == 0


def test_the_timestamp_of_another_keys_signature_does_not_count(
    command: Command, certified: Stack, repository: Repository, keys: Keys, other_keys: Keys, server: Server
) -> None:
    publish(command, certified, repository, keys)
    publish(command, certified, repository, other_keys, "--timestamp-server", server.url)
    assert publish(command, certified, repository, keys, "--timestamp-server", server.url).code == 0
    assert signatures(repository, certified.image) == [False, True, True]


def of_something_else(authority: Path) -> bytes:
    query = openssl(authority, "ts", "-query", "-data", "tsa.cnf", "-sha256", "-cert")
    return reply(authority, query)


def a_refusal(authority: Path) -> bytes:
    query = openssl(authority, "ts", "-query", "-data", "tsa.cnf", "-sha512", "-cert")
    return reply(authority, query)


def changed(authority: Path) -> bytes:
    good = bytearray(of_something_else(authority))
    good[-5] ^= 1
    return bytes(good)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"not here", "status code 404"),
        (503, b"down", "status code 503"),
        (200, b"", "asn1"),
        (200, b"<html>\x1b[31mWelcome</html>", "asn1"),
        (200, bytes.fromhex("30053003020100"), "no pkcs7 data"),  # granted, without a timestamp
        (200, changed, "verification failure"),
        (200, a_refusal, "the request is rejected"),
        (200, of_something_else, "it sent a timestamp of something else"),
    ],
    ids=["no page", "an outage", "nothing", "a page", "no timestamp", "changed", "a refusal", "of something else"],
)
def test_nonsense_of_the_server_ends_with_5_and_moves_no_tag(
    command: Command, certified: Stack, repository: Repository, keys: Keys, server: Server, authority: Path,
    status: int, body: object, message: str,
) -> None:  # fmt: skip
    server.answers = status, body if isinstance(body, bytes) else body(authority)  # type: ignore[operator]
    done = publish(command, certified, repository, keys, "--timestamp-server", server.url)
    assert done.code == 5
    assert f"{server.url} does not answer with a timestamp" in " ".join(done.err.split())
    assert message in " ".join(done.err.split())
    assert tags(repository) == {}
    server.answers = None
    assert publish(command, certified, repository, keys, "--timestamp-server", server.url).code == 0
    assert signatures(repository, certified.image)[-1]


def test_a_server_that_does_not_answer_ends_with_5_and_moves_no_tag(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    url = f"http://127.0.0.1:{free_port()}/tsr"
    done = publish(command, certified, repository, keys, "--timestamp-server", url)
    assert done.code == 5
    assert f"the timestamp server {url} does not answer; no tag was moved" in " ".join(done.err.split())
    assert tags(repository) == {}


def test_a_registry_that_fails_after_the_timestamp_is_blamed_itself(
    command: Command, certified: Stack, keys: Keys, server: Server, tmp_path: Path
) -> None:
    with serving(tmp_path / "store") as host:
        assert publish(command, certified, f"{host}/a/b", keys).code == 0
    with serving(tmp_path / "store", port=int(host.rpartition(":")[2]), read_only=True):
        done = publish(command, certified, f"{host}/a/b", keys, "--timestamp-server", server.url)
    assert done.code == 5
    assert f"{host}: the registry is read-only" in " ".join(done.err.split())
    assert len(server.queries) == 1


@pytest.mark.parametrize(
    "url",
    ["", "tsr", "ftp://127.0.0.1/tsr", "https://", "http:///tsr", "http://a:0/", "http://a:99999/", "http://[::1/",
     "http://a b/", "http://a/\n", "http://me:secret@a/tsr", "--json"],
)  # fmt: skip
def test_what_is_no_address_ends_with_2(
    command: Command, certified: Stack, repository: Repository, keys: Keys, url: str
) -> None:
    done = publish(command, certified, repository, keys, f"--timestamp-server={url}")
    assert done.code == 2
    assert "--timestamp-server" in done.err
    assert "secret" not in done.err
    assert tags(repository) == {}


@pytest.mark.parametrize("url", ["http://127.0.0.1:3161/tsr", "https://[::1]/", "https://tsa.example.org/a?b=c"])
def test_an_address_is_passed_on_as_it_is(url: str) -> None:
    assert timestamp.server(url) == url
