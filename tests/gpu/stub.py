"""Compiles the fake driver, and starts programs on a machine with its libraries and device files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from doctor.read.elf import NotElfError, SharedObject
from tests import parts

HERE = Path(__file__).parent
DRIVER = "580.95.05"
# The newest CUDA that a branch of the driver runs, as cuDriverGetVersion says it.
BRANCHES = {525: 12000, 535: 12020, 550: 12040, 570: 12080, 575: 12090, 580: 13000}
# name | compute capability | MiB, as management.c reads it
H200 = "NVIDIA H200|9|0|143771"
V100 = "Tesla V100-SXM2-32GB|7|0|32768"
T4 = "Tesla T4|7|5|15360"
# A /dev of its own with the nodes of some GPUs, in a mount namespace that ends with the program.
DEVICES = """
set -e
mkdir -p "$1" && mount -t tmpfs none "$1"
for name in null zero random urandom full tty; do touch "$1/$name" && mount --bind "/dev/$name" "$1/$name"; done
mkdir "$1/shm" && mount -t tmpfs none "$1/shm"
ln -s /proc/self/fd "$1/fd"
for name in $2; do touch "$1/$name"; done
mount --move "$1" /dev
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class Machine:
    """A machine with these GPUs, as far as a program can see that runs nothing on one. `folder` is its own."""

    folder: Path
    nodes: Sequence[str]  # names in /dev
    more: Mapping[str, str] = field(default_factory=dict)  # environment variables

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
        return {**inherited, "LD_LIBRARY_PATH": str(self.folder), **self.more}

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs a program on this machine."""
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        return [*unshare, "/bin/sh", "-c", DEVICES, "sh", str(self.folder / "dev"), " ".join(self.nodes), *argv]

    def calls(self) -> list[Call]:
        """The calls of the driver so far, the first of each function in each process."""
        file = self.folder / "calls"
        text = file.read_text() if file.exists() else ""
        pattern = r"^call (?P<name>.+) (?P<pid>\d+)\n(?P<stack>(?:(?!call ).*\n)*)"
        return [
            Call(match["name"], int(match["pid"]), match["stack"]) for match in re.finditer(pattern, text, re.MULTILINE)
        ]


def machine(
    folder: Path,
    libraries: Path,
    gpus: Sequence[str] = (H200,),
    nodes: Sequence[str] | None = None,
    driver: str = DRIVER,
    more: Mapping[str, str] | None = None,
) -> Machine:
    """Make a machine in a new folder. `nodes`: its device files, by default one a GPU and CUDA's."""
    shutil.copytree(libraries, folder, copy_function=os.link)
    # The suite hands on few environment variables, so the libraries read files beside themselves.
    head = f"{driver}|{BRANCHES[int(driver.partition('.')[0])]}"
    (folder / "gpus").write_text("".join(f"{line}\n" for line in (head, *gpus)))
    numbered = [*(f"nvidia{number}" for number in range(len(gpus))), "nvidia-uvm"]
    return Machine(folder, numbered if nodes is None else nodes, more or {})


@dataclass(frozen=True)
class Call:
    """A call of the driver: the function, the process, and the Python stack, innermost first."""

    function: str
    pid: int
    stack: str


def libraries(folder: Path, site_packages: Path | None = None) -> Path:
    """The folder of the fake libcuda.so.1 and libnvidia-ml.so.1.

    The first has what the libraries below `site_packages` link; without that, it is there only to be found.
    """
    parts.programs("gcc", how="apt-get install gcc libc6-dev")
    folder.mkdir(parents=True)
    functions = sorted(linked(site_packages) if site_packages else ())
    (folder / "functions.h").write_text("".join(f"FUNCTION({name})\n" for name in functions))
    for source, library in (("driver.c", "libcuda.so.1"), ("management.c", "libnvidia-ml.so.1")):
        options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-I", str(folder), f"-Wl,-soname,{library}"]
        argv = ["gcc", *options, "-o", str(folder / library), str(HERE / source), "-ldl"]
        subprocess.run(argv, check=True)
    return folder


# What driver.c defines by itself.
OWN = {
    "cuInit", "cuDeviceGetCount", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName", "cuGetProcAddress",
    "cuGetProcAddress_v2",
}  # fmt: skip


def linked(site_packages: Path) -> set[str]:
    """The functions of the CUDA driver that shared objects link by name."""
    names: set[str] = set()
    for path in site_packages.rglob("*.so*"):
        if path.is_file() and not path.is_symlink():
            with suppress(NotElfError), SharedObject(path) as library:
                if "libcuda.so.1" in library.needed:
                    names |= library.undefined(("cu",))
    return {name for name in names if re.fullmatch(r"cu[A-Z]\w+", name)} - OWN
