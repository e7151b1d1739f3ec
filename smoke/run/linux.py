"""What Python does not offer of Linux: signals at a parent's death, process trees, shared memory, OOM counts."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
# What training may need of root, on a host where it runs as root: its files, locked memory, priorities and limits.
# CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, IPC_LOCK, SYS_NICE, SYS_RESOURCE.
_CAPABILITIES = (0, 1, 2, 3, 4, 14, 23, 24)
_LAST_CAPABILITY = 63
_PR_SET_CHILD_SUBREAPER = 36

# Versions 2 and 1 of control groups, as seen from inside a container (its own group is the root there).
_CGROUP_OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process signal `number` when its parent, process `parent`, ends.

    The setting does not survive a fork: every process of the chain asks for itself. A parent that was gone
    before the kernel was asked would never be noticed, so that is looked at afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none can get away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide() -> None:
    """Close this process to others of the same user: its memory, its descriptors, and debuggers.

    Forked processes inherit it; a program that is executed is open again. Privileged processes still get in: those that
    can trace others, watch performance, or administrate the system.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def give_up_privileges() -> None:
    """Give up root's privileges for this process's programs to come, so that `hide` holds against root as well."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in _CAPABILITIES:
            with suppress(OSError):  # not root, or no such capability: there is nothing to give up
                _prctl(_PR_CAPBSET_DROP, capability)


def remove(directory: Path) -> None:
    """Remove a directory that a probe could write to, however deep it has become."""
    with suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    # By its path: what PATH names first is the stack's.
    if os.path.lexists(directory) and (program := shutil.which("rm", path=os.defpath)):
        subprocess.run([program, "-rf", "--", directory], stderr=subprocess.DEVNULL)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):  # it ended meanwhile
                stat = Path(entry.path, "stat").read_bytes()
                # The command name, in parentheses, may itself hold spaces and parentheses.
                yield int(entry.name), int(stat[stat.rindex(b")") + 2 :].split()[1])


def descendants(root: int) -> set[int]:
    """All processes below process `root`, without it."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    ahead = [root]
    while ahead:
        for pid in children.get(ahead.pop(), ()):
            if pid not in found:
                found.add(pid)
                ahead.append(pid)
    return found


def signal_all(pids: set[int], number: int) -> None:
    """Send signal `number` to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_descendants(keep: set[int] | frozenset[int] = frozenset(), seconds: float = 30) -> None:
    """Kill everything below this process, except the processes `keep`, and wait until it is gone.

    A process may fork while it is being killed, so this looks again until nothing is left. Raises
    TimeoutError when something will not die (stuck inside the kernel) for `seconds`.
    """
    deadline = time.monotonic() + seconds
    while left := descendants(os.getpid()) - keep:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes that will not die: {sorted(left)}")
        signal_all(left, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):  # not ours to collect: its own parent will, or will leave it to us
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def memory_mib(pids: set[int]) -> float:
    """The memory of these processes together, in MiB, a page shared by several counted once (PSS).

    Where the kernel hides the proportional size, the resident size stands in.
    """
    kib = 0
    for pid in pids:
        with suppress(OSError):
            try:
                fields = Path(f"/proc/{pid}/smaps_rollup").read_text()
                kib += sum(int(line.split()[1]) for line in fields.splitlines() if line.startswith("Pss:"))
            except (FileNotFoundError, PermissionError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                kib += pages * os.sysconf("SC_PAGESIZE") // 1024
    return kib / 1024


def oom_kills() -> int:
    """How often the kernel's OOM killer has struck, here and in this control group. Only a rise means something."""
    total = 0
    for name in ("/proc/vmstat", *_CGROUP_OOM_FILES):
        with suppress(OSError):
            for line in Path(name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    total += int(value)
    return total


def gpu_count() -> int:
    """NVIDIA GPUs that a process started here would see, counted without touching CUDA."""
    nodes = sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdecimal())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return nodes if visible is None else min(nodes, len([name for name in visible.split(",") if name.strip()]))
