"""The port at which a probe's processes meet: nobody else's, and nobody's by chance before they do."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from smoke.run import child


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Lets the kernel give out ports from this one on, as far as the suite knows."""

    def say(port: int) -> None:
        (tmp_path / "range").write_text(f"{port}\t65535\n")
        monkeypatch.setattr(child, "EPHEMERAL", tmp_path / "range")

    return say


def test_the_kernel_gives_it_to_nobody_by_itself(first: Callable[[int], None]) -> None:
    first(20000)
    ports = {child.free_port() for _ in range(50)}
    assert len(ports) > 40
    assert 10000 <= min(ports) <= max(ports) < 20000


def test_one_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("", child.free_port()))
        free = child.free_port()
        drawn = iter([other.getsockname()[1], free])
        monkeypatch.setattr(random.SystemRandom, "choice", lambda *_: next(drawn))
        assert child.free_port() == free
        assert not list(drawn)


def test_with_none_left_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("", child.free_port()))
        monkeypatch.setattr(random.SystemRandom, "choice", lambda *_: other.getsockname()[1])
        with pytest.raises(OSError, match="no free port in 100 tries"):
            child.free_port()


def test_where_the_kernel_gives_out_all_it_chooses(first: Callable[[int], None]) -> None:
    first(1024)
    real = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert child.free_port() >= real
