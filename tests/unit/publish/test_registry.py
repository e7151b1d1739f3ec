"""Where logins are looked for. What registries really do is in tests/registry."""

from __future__ import annotations

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
