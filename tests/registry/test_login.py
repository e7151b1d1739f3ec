"""Logins, TLS and plain HTTP, and tools that are missing."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.publish.reference import parse_repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, publish, verify
from tests.registry.server import serving
from tests.unit.conftest import Command

USER, TOKEN = "robot", "s3cret-token"
HTPASSWD = f"{USER}:$2b$04$xdIufwtnxwbP7iJrS/ElaOG1gIhpymstflCn9RvbAX/XcnnMjJDGq\n"  # bcrypt of the token


@pytest.fixture
def locked_host(tmp_path: Path) -> Iterator[str]:
    """A registry that asks for a name and a token."""
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    auth = {"htpasswd": {"realm": "here", "path": str(tmp_path / "htpasswd")}}
    with serving(tmp_path / "store", auth=auth) as host:
        yield host


def login(path: Path, host: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    secret = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
    path.write_text(json.dumps({"auths": {host: {"auth": secret}}}))


def test_a_registry_without_a_login_is_told_with_how_to_log_in(
    command: Command, certified: Stack, keys: Keys, locked_host: str
) -> None:
    for answer in (
        publish(command, certified, f"{locked_host}/images", keys),
        verify(command, certified, f"{locked_host}/images:{TINY}", keys),
    ):
        assert answer.code == 5
        assert f"{locked_host} refuses: not logged in, or not allowed" in answer.err
        assert f"docker login {locked_host}" in answer.err


@pytest.mark.parametrize("tool", ["docker", "skopeo", "skopeo's own place"])
def test_the_login_of_docker_and_of_skopeo_is_used_and_shown_nowhere(
    command: Command, certified: Stack, keys: Keys, locked_host: str, tmp_path: Path, tool: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if tool == "docker":
        login(tmp_path / "docker" / "config.json", locked_host)
    elif tool == "skopeo":
        login(tmp_path / "auth.json", locked_host)
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
        (tmp_path / "run").mkdir()
        argv = ["skopeo", "login", "--tls-verify=false", "--username", USER, "--password-stdin", locked_host]
        subprocess.run(argv, input=TOKEN, text=True, check=True, capture_output=True)
    done = publish(command, certified, f"{locked_host}/images", keys)
    assert done.code == 0, done.err
    verified = verify(command, certified, f"{locked_host}/images:{TINY}", keys)
    assert verified.code == 0
    text = done.out + done.err + verified.out + verified.err
    assert TOKEN not in text and base64.b64encode(TOKEN.encode()).decode()[:8] not in text


def test_plain_http_is_spoken_to_this_machine_only() -> None:
    assert parse_repository("127.0.0.1:5000/images", insecure=False).plain
    assert parse_repository("localhost/images", insecure=False).plain
    assert parse_repository("[::1]:5000/images", insecure=False).plain
    assert not parse_repository("127.0.0.1.example.org/images", insecure=False).plain
    assert not parse_repository("10.0.0.1:5000/images", insecure=False).plain
    assert parse_repository("10.0.0.1:5000/images", insecure=True).plain


@pytest.fixture
def address() -> str:
    """An address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the system says which address it would send from
        except OSError:
            pytest.skip("this machine has no network")
        host = str(probe.getsockname()[0])
    if host.startswith("127."):
        pytest.skip("this machine has only the loopback")
    return host


def test_a_registry_without_tls_elsewhere_needs_insecure(
    command: Command, certified: Stack, keys: Keys, tmp_path: Path, address: str
) -> None:
    with serving(tmp_path / "store", address=address) as host:
        refused = publish(command, certified, f"{host}/images", keys)
        assert refused.code == 5
        assert f"{host} does not speak TLS" in refused.err
        assert "add --insecure" in refused.err
        assert publish(command, certified, f"{host}/images", keys, "--insecure").code == 0
        assert verify(command, certified, f"{host}/images:{TINY}", keys).code == 5
        assert verify(command, certified, f"{host}/images:{TINY}", keys, "--insecure").code == 0


def test_tls_is_spoken_elsewhere_and_a_companys_authority_is_honoured(
    command: Command, certified: Stack, keys: Keys, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, authority = tmp_path / "tls.key", tmp_path / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         key, "-out", authority, "-subj", "/CN=registry", "-addext", f"subjectAltName=IP:{address}"],
        check=True, capture_output=True,
    )  # fmt: skip
    with serving(tmp_path / "store", address=address, tls={"certificate": str(authority), "key": str(key)}) as host:
        refused = publish(command, certified, f"{host}/images", keys)
        assert refused.code == 5
        assert f"{host}: its TLS certificate is not trusted" in refused.err
        assert "set SSL_CERT_FILE" in refused.err
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert publish(command, certified, f"{host}/images", keys).code == 0
        assert verify(command, certified, f"{host}/images:{TINY}", keys).code == 0


@pytest.mark.parametrize("tool", ["oras", "cosign"])
def test_a_missing_tool_ends_with_4(
    command: Command, certified: Stack, keys: Keys, shared_host: str, tmp_path: Path, tool: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in {"oras", "cosign", "sh"} - {tool}:
        (folder / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(folder))
    answer = publish(command, certified, f"{shared_host}/missing", keys)
    assert answer.code == 4
    assert f"{tool} is not installed" in answer.err
    assert "scripts/install-engine" in answer.err
