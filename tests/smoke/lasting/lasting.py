"""Does the runner end what would last, ranks and strays included?"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=(), ranks=2
)


def run(context: Context) -> Iterator[Reading]:
    """Start a stray in a session of its own, say so, and last."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(f"started-{context.rank}").write_text(str(os.getpid()))
    time.sleep(600)
    yield Reading("answer", 42)
