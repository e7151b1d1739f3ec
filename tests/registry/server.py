"""A real registry on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def serving(
    folder: Path, *, port: int = 0, read_only: bool = False, auth: dict[str, Any] | None = None,
    address: str = "127.0.0.1", tls: dict[str, str] | None = None,
) -> Iterator[str]:  # fmt: skip
    """A registry that keeps its images below a folder; yields its host."""
    host = f"{address}:{port or free_port()}"
    config = folder.parent / f"{folder.name}-{host.replace(':', '-')}.json"
    storage = {
        "filesystem": {"rootdirectory": str(folder)},
        "maintenance": {"readonly": {"enabled": read_only}},
    }
    settings = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": storage,
        "http": {"addr": host, **({"tls": tls} if tls else {})},
    }
    config.write_text(json.dumps(settings | ({"auth": auth} if auth else {})))
    with (folder.parent / f"{config.stem}.log").open("wb") as log:
        child = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        _wait_for(host, child)
        yield host
    finally:
        child.terminate()
        child.wait()


def _wait_for(host: str, child: subprocess.Popen[bytes]) -> None:
    name, port = host.split(":")
    for _ in range(200):
        assert child.poll() is None, "the registry ended"
        with socket.socket() as client:
            if client.connect_ex((name, int(port))) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"{host} does not answer")
