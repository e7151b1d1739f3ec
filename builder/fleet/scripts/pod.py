"""The first process of a pod: it says what machine this is, and becomes the suite's supervisor.

    python -I -S pod.py REQUEST LOG COMMAND…

It needs the standard library alone, and nothing of the stack. What `vetted certify` does around a container, a pod has
to do in itself.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

PATIENCE = 60  # seconds for nvidia-smi


def machine() -> dict[str, object]:
    """What a certificate says of the hardware and the kernel."""
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": match[1].strip() if match else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus(),
        "kernel": platform.release(),
    }


def gpus() -> list[list[str]]:
    """Name and driver of each GPU of this pod; nvidia-smi comes with the driver, from the node."""
    argv = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in listed.splitlines() if line.strip()]


def main() -> None:
    request, log, *command = sys.argv[1:]
    # The log of a pod mixes both outputs; the suite's events must stand alone in it.
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    # Of a volume that everybody may write to, the probes' user could rename the supervisor's folder.
    Path(os.environ["TMPDIR"]).chmod(0o1777)
    print(json.dumps(machine()), flush=True)
    reading, writing = os.pipe()
    os.write(writing, Path(request).read_bytes())
    os.dup2(reading, 0)
    os.set_inheritable(writing, True)  # the supervisor ends when its input does
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
