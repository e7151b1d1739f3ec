"""The root filesystem: what is kept of it, and what it is made from."""

from __future__ import annotations

import pytest

from builder.base import errors
from builder.image import rootfs
from builder.lock import debian
from tests.conftest import Small


def test_a_root_filesystem_that_could_not_be_made_leaves_nothing(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small.project.state / "rootfs"
    folder.mkdir(parents=True)
    package = small.root / "damaged.deb"
    package.write_bytes(b"dpkg-deb refuses this")
    monkeypatch.setattr(debian, "fetch", lambda *_: {small.lock.debian[0]: package})
    with pytest.raises(errors.VettedError, match="reading "):
        rootfs.make(small.project, small.lock, small.scratch())
    assert list(folder.iterdir()) == []
