"""Run a program in the root filesystem of an image, without Docker: python -I -S enter.py JSON

Started by root in mount, process and network namespaces of its own, which end with it. The program has what Docker
gives it: the image read-only, its own /proc, /dev, /tmp, /run and /etc/hosts, the suite at /vetted, loopback, few
capabilities; and with a GPU its device files and the driver's libraries. The host's Python runs this, so it needs the
standard library alone.
"""

import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE = 1, 2, 4, 8, 32, 4096, 16384
DROP_CAPABILITY, NO_NEW_PRIVILEGES = 24, 38  # prctl
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DRIVER = "/run/driver"
LIBRARIES = re.compile(r"lib(cuda|nvidia|nvcuvid|nvoptix)[^/]*\.so[.0-9]*")

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    done = libc.mount(
        source.encode(), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {source}: {os.strerror(number)}", str(target))


def bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    mount(str(source), target, flags=BIND)


def furnish(root: Path, suite: str, shm: str, gpu: bool) -> None:
    """Mount everything below the root."""
    mount(str(root), root, flags=BIND | RECURSIVE)
    mount("proc", root / "proc", "proc", NO_SUID | NO_DEV | NO_EXEC)
    mount("sysfs", root / "sys", "sysfs", NO_SUID | NO_DEV | NO_EXEC | READ_ONLY)
    mount("tmpfs", root / "tmp", "tmpfs", NO_SUID | NO_DEV, "mode=1777")
    mount("tmpfs", root / "run", "tmpfs", NO_SUID | NO_DEV, "mode=755")
    hosts = root / "run" / "hosts"
    # vLLM and torch's launcher look up `localhost`, and there is no other resolver.
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n")
    bind(hosts, root / "etc" / "hosts")
    dev = root / "dev"
    mount("tmpfs", dev, "tmpfs", NO_SUID, "mode=755")
    for name in DEVICES:
        bind(Path("/dev", name), dev / name)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(f"/proc/self/{target}")
    (dev / "shm").mkdir()
    mount("tmpfs", dev / "shm", "tmpfs", NO_SUID | NO_DEV, f"mode=1777,size={shm}")
    mount(suite, root / "vetted", flags=BIND)
    mount(suite, root / "vetted", flags=BIND | REMOUNT | READ_ONLY)
    if gpu:
        give_gpus(root)
    mount(str(root), root, flags=BIND | REMOUNT | READ_ONLY)


def give_gpus(root: Path) -> None:
    """The device files of the GPUs, and the driver's libraries, as NVIDIA's container toolkit mounts them."""
    for node in Path("/dev").glob("nvidia*"):
        if node.is_char_device():
            bind(node, root / "dev" / node.name)
    caps = Path("/dev/nvidia-caps")
    if caps.is_dir():
        (root / "dev" / caps.name).mkdir()
        mount(str(caps), root / "dev" / caps.name, flags=BIND | RECURSIVE)
    target = root / DRIVER.lstrip("/")
    target.mkdir()
    for library in driver():
        bind(library.resolve(), target / library.name)


def driver() -> list[Path]:
    """The libraries of the host's driver: those beside libcuda.so.1, wherever the loader finds it."""
    ctypes.CDLL("libcuda.so.1")
    loaded = re.search(r"(/\S+/libcuda\.so\S*)", Path("/proc/self/maps").read_text())
    folder = Path(loaded[1]).parent if loaded else Path("/usr/lib/x86_64-linux-gnu")
    return [path for path in sorted(folder.iterdir()) if LIBRARIES.fullmatch(path.name) and path.is_file()]


def raise_loopback() -> None:
    """A network namespace has an interface for itself, which is down at first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interface:
        fcntl.ioctl(interface, 0x8914, struct.pack("16sH22x", b"lo", 0x41))


def drop(capabilities: Sequence[int]) -> None:
    """Keep only these capabilities, and gain none from a program."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for number in range(last + 1):
        if number not in capabilities and libc.prctl(DROP_CAPABILITY, number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "a capability cannot be dropped")
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "new privileges cannot be ruled out")


def main(text: str) -> None:
    os.umask(0o022)  # Docker's, whatever root's is: the probes run as another user
    order = json.loads(text)
    root = Path(order["root"])
    environment = dict(order["environment"])
    if order["gpu"]:
        environment["LD_LIBRARY_PATH"] = DRIVER
    raise_loopback()
    furnish(root, order["suite"], order["shm"], order["gpu"])
    os.chroot(root)
    os.chdir("/tmp")
    drop(order["capabilities"])
    os.execve(order["argv"][0], order["argv"], environment)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError as error:
        sys.exit(f"the image cannot be entered: {error}")
