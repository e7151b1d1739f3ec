"""Linux features that Python lacks: parent-death signals, process trees, shared memory, OOM counts."""

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
# The capabilities that training as root may need on a host: files, locked memory, priorities and limits.
# CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, IPC_LOCK, SYS_NICE, SYS_RESOURCE.
_CAPABILITIES = (0, 1, 2, 3, 4, 14, 23, 24)
_LAST_CAPABILITY = 63
_PR_SET_CHILD_SUBREAPER = 36

# Control groups version 2 and 1, as seen inside a container (where its own group is the root).
_CGROUP_OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process signal `number` when its parent, process `parent`, ends.

    The setting does not survive a fork, so every process of a chain must call this. A parent that ended before the
    call would go unnoticed, so this also checks for it.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none can escape."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide() -> None:
    """Protect this process's memory and descriptors from other processes of the same user, debuggers included.

    Forks inherit the protection, exec ends it. It does not protect from processes with the privilege to trace others,
    to watch performance, or to administer the system.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def give_up_privileges() -> None:
    """Drop root's privileges for all programs that this process executes, so that `hide` also protects against root."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in _CAPABILITIES:
            with suppress(OSError):  # not root, or no such capability: nothing to drop
                _prctl(_PR_CAPBSET_DROP, capability)


def remove(directory: Path) -> None:
    """Remove a directory that a probe could write to, however deeply nested it is."""
    with suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    # By its path: PATH may find a program of the stack first.
    if os.path.lexists(directory) and (program := shutil.which("rm", path=os.defpath)):
        subprocess.run([program, "-rf", "--", directory], stderr=subprocess.DEVNULL)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):  # the process has ended
                stat = Path(entry.path, "stat").read_bytes()
                # The command name, in parentheses, may itself contain spaces and parentheses.
                yield int(entry.name), int(stat[stat.rindex(b")") + 2 :].split()[1])


def descendants(root: int) -> set[int]:
    """All descendants of process `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    below: set[int] = set()
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            if pid not in below:
                below.add(pid)
                queue.append(pid)
    return below


def signal_all(pids: set[int], number: int) -> None:
    """Send signal `number` to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_descendants(keep: set[int] | frozenset[int] = frozenset(), seconds: float = 30) -> None:
    """Kill all descendants of this process except `keep`, and wait until they have ended.

    A process may fork while it is being killed, so this repeats until none is left. Raises TimeoutError if a process
    does not end within `seconds` (stuck inside the kernel).
    """
    deadline = time.monotonic() + seconds
    while left := descendants(os.getpid()) - keep:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes that cannot be killed: {sorted(left)}")
        signal_all(left, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):  # not our child: its parent collects it, or leaves it to us
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def memory_mib(pids: set[int]) -> float:
    """The memory of these processes together, in MiB, with shared pages counted once (PSS).

    If the kernel hides the proportional size, the resident size (RSS) is used.
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
    """How often the kernel's OOM killer has acted, on this machine and in this control group. Only a rise counts."""
    total = 0
    for name in ("/proc/vmstat", *_CGROUP_OOM_FILES):
        with suppress(OSError):
            for line in Path(name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    total += int(value)
    return total
