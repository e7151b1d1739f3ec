"""Where logins are looked for. What registries really do is in tests/registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import errors
from builder.publish import registry
from builder.publish.reference import parse_repository


def test_without_home_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.BadInputError, match="HOME is not set") as caught:
        registry.resolve(parse_repository("localhost:1/a", insecure=False), "tag")
    assert "export HOME" in caught.value.next_step


@pytest.mark.parametrize(("crashes", "message"), [(1, "disk is full"), (3, "disk is full"), (9, "crashed at")])
def test_after_a_crash_oras_is_asked_again_and_its_answer_is_told(
    crashes: int, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """oras 1.2.0 crashes now and then when several transfers are refused at once."""
    oras, runs = tmp_path / "bin/oras", tmp_path / "runs"
    oras.parent.mkdir()
    oras.write_text(
        f"#!/bin/sh\necho >> {runs}\n[ $(wc -l < {runs}) -gt {crashes} ] || {{\n"
        "printf 'panic: send on closed channel\\n\\ngoroutine 7 [running]:\\nsync.f()\\n' >&2; exit 2; }\n"
        "echo 'Error response from registry: unknown error: map[Err:28 Op:write]' >&2; exit 1\n"
    )
    oras.chmod(0o755)
    monkeypatch.setenv("PATH", str(oras.parent), prepend=":")
    with pytest.raises(errors.NetworkError, match=message) as caught:
        registry.push(parse_repository("localhost:1/a", insecure=False), tmp_path / "layout", "sha256:" + "0" * 64)
    assert "goroutine" not in str(caught.value) and len(runs.read_text().splitlines()) == min(crashes, 3) + 1
