"""The port at which a probe's processes meet: nobody else's, and nobody's by chance before they do."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from smoke import child


def given_out() -> int:
    return int(child.EPHEMERAL.read_text().split()[0])


def test_the_kernel_gives_it_to_nobody_by_itself() -> None:
    ports = {child._free_port() for _ in range(50)}
    assert len(ports) > 40
    assert max(ports) < given_out()
    assert min(ports) >= 1024


def test_one_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    free = child._free_port()
    with socket.socket() as other:
        other.bind(("", child._free_port()))
        drawn = iter([other.getsockname()[1], free])
        monkeypatch.setattr(random.SystemRandom, "choice", lambda *_: next(drawn))
        assert child._free_port() == free
        assert not list(drawn)


def test_with_none_left_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("", child._free_port()))
        monkeypatch.setattr(random.SystemRandom, "choice", lambda *_: other.getsockname()[1])
        with pytest.raises(OSError, match="no free port in 100 tries"):
            child._free_port()


def test_where_the_kernel_gives_out_all_it_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(child, "EPHEMERAL", tmp_path / "range")
    assert child._free_port() >= given_out()
