"""Do two ranks find each other?"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=(), ranks=2
)


def run(_: Context) -> Iterator[Reading]:
    with socket.socket() as sock:
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if os.environ["RANK"] == "0":
            sock.bind(address)
            sock.listen()
            other, _ = sock.accept()
            with other:
                yield Reading("answer", int(other.recv(100)))
        else:
            while sock.connect_ex(address):
                time.sleep(0.01)
            sock.sendall(b"42")
            yield Reading("answer", 7)  # only the first rank's counts
