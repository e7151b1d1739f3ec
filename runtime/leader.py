"""The folder of a run of several nodes: node 0 made it, and its ranks tell those of the other nodes where it is.

It must be one folder, on storage that all nodes share: ZeRO and FSDP write a part of each checkpoint on every node, and
a run can be resumed only where all of it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from runtime.train.folder import CHECKPOINT, OUTPUT, RECORD
from runtime.train.launch import NODES

KEY = "vetted"
PATIENCE = 30.0  # seconds: a file server may show a new folder late


def follow(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set OUTPUT and CHECKPOINT as they are on node 0. Ends all ranks if a node does not see that folder."""
    number = int(environ.get(NODES, "1"))
    if number == 1:
        return
    if environ.get("GROUP_WORLD_SIZE") != str(number):
        sys.exit(
            f"vetted: the launcher started this node alone, not as one of {number}\n"
            "next: leave accelerate_config out, or name one for several processes, such as zero3"
        )
    from torch.distributed import TCPStore

    store = TCPStore(
        environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), is_master=False, wait_for_workers=False
    )  # torchrun's own, on node 0
    missing = agree(store, number, environ)
    if missing and environ["LOCAL_RANK"] == "0":
        print(
            f"vetted: {environ[OUTPUT]}, the folder of this run on node 0, is not on node {', '.join(missing)}\n"
            "usual cause: each node has a /runs of its own\n"
            "next: mount one folder that all nodes share as /runs",
            file=sys.stderr,
        )
    if missing:
        sys.exit(1)


def agree(store: Any, number: int, environ: MutableMapping[str, str]) -> list[str]:
    """Learn the folder from node 0. Returns the nodes that do not see it, by number."""
    node, first = environ["GROUP_RANK"], environ["LOCAL_RANK"] == "0"
    if node == "0" and first:
        run = {name: environ[name] for name in (OUTPUT, CHECKPOINT)}
        store.set(f"{KEY}/run", json.dumps([run, _digest(Path(environ[OUTPUT]))]))
    run, digest = json.loads(store.get(f"{KEY}/run"))
    environ.update(run)
    if first:
        store.set(f"{KEY}/{node}", "yes" if _seen(Path(run[OUTPUT]), digest) else "no")
    return [str(other) for other in range(number) if store.get(f"{KEY}/{other}") != b"yes"]


def _seen(folder: Path, digest: str) -> bool:
    end = time.monotonic() + PATIENCE
    while _digest(folder) != digest:
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def _digest(folder: Path) -> str:
    """Of the record, which is another one after each start: a copy of the folder is not the folder."""
    try:
        return hashlib.sha256((folder / RECORD).read_bytes()).hexdigest()
    except OSError:
        return ""
