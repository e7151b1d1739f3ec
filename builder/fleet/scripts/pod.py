"""The first process of a pod: it says what machine this is, and becomes the suite's supervisor.

    python -I -S pod.py REQUEST LOG COMMAND…

It needs the standard library alone, and nothing of the stack. What `vetted certify` does around a container, a pod has
to do in itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PATIENCE = 60  # seconds for nvidia-smi
# Where NVIDIA's container runtime mounts it from the node. No program is looked up by name here: the folder of the
# stack's own programs is first in the image's PATH, and this process is root.
NVIDIA_SMI = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi")
MOUNTS = "/proc/self/mountinfo"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}  # nothing of the image's or the pod's: no LD_PRELOAD


def machine() -> dict[str, object]:
    """What a certificate says of the hardware and the kernel."""
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": match[1].strip() if match else os.uname().machine,
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus(),
        "kernel": os.uname().release,
    }


def gpus() -> list[list[str]]:
    """Name and driver of each GPU of this pod, as the node's own nvidia-smi lists them; none without it."""
    program = next(filter(from_node, NVIDIA_SMI), None)
    if program is None:
        return []
    argv = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(
            argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
            timeout=PATIENCE,
        ).stdout  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in listed.splitlines() if line.strip()]


def from_node(path: str) -> bool:
    """Whether the node put this file there: it, or a folder above it, is mounted over the image.

    The image could have a file of that name, or a link; what is in an image mounts nothing.
    """
    if not Path(path).is_file() or os.path.realpath(path) != path:
        return False
    try:
        lines = Path(MOUNTS).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    mounted = {line.split()[4] for line in lines if len(line.split()) > 4}
    return any(str(place) in mounted for place in (Path(path), *Path(path).parents) if str(place) != "/")


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
