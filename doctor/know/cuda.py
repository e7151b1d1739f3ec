"""What is known of CUDA: the drivers that run it, the torch and the bitsandbytes that are built for it."""

from __future__ import annotations

import re
from pathlib import Path

from doctor.base import versions
from doctor.read import files
from doctor.read.environment import Environment

# The first driver branch of each CUDA major, from NVIDIA's CUDA release notes (table of minimum driver versions). A
# driver runs every minor version of its majors. runtime/preflight.py has the same table.
DRIVERS = {11: 450, 12: 525, 13: 580}
# The CUDA of torch's wheels on the default index; a local version such as +cu128 or +cpu says it itself.
TORCH = (("<2.5", "12.1"), (">=2.5,<2.7", "12.4"), (">=2.7,<2.8", "12.6"), (">=2.8,<2.11", "12.8"), (">=2.11", "13.0"))
# The first bitsandbytes with a binary for a CUDA, read from the published wheels.
BITSANDBYTES = {"12.8": "0.45.3", "12.9": "0.46.1", "13.0": "0.48.0"}


def newest(driver: str) -> int | None:
    """The newest major version of CUDA that a driver runs."""
    match = re.match(r"\d+", driver)
    branch = int(match.group()) if match else 0
    return max((major for major, first in DRIVERS.items() if branch >= first), default=None)


def of_torch(environment: Environment) -> str | None:
    """The CUDA that the installed torch was built for: "12.8", "" for none, or None when it cannot be told."""
    torch = environment.packages.get("torch")
    if torch is None:
        return None
    if torch.folder is not None:
        stated = _of_version_file(torch.folder / "torch" / "version.py")
        if stated is not None:
            return stated
    version = versions.parse(torch.version)
    local = (version.local or "") if version else ""
    match = re.match(r"cu(\d\d)(\d)", local)
    if match:
        return f"{match[1]}.{match[2]}"
    if local.startswith(("cpu", "rocm", "xpu")):
        return ""
    return next((cuda for releases, cuda in TORCH if versions.within(releases, torch.version)), None)


def major(cuda: str | None) -> int | None:
    """12 of "12.8"; None where it is empty or not known."""
    number = (cuda or "").partition(".")[0]
    return int(number) if number.isdigit() else None


def torch_family(package: str, torch: str) -> str | None:
    """The minor version of torchvision or torchaudio that belongs to a torch 2.x."""
    version = versions.parse(torch)
    if version is None or version.major != 2:
        return None
    if package == "torchvision":
        return f"0.{version.minor + 15}"
    return f"2.{version.minor}" if package == "torchaudio" else None


def _of_version_file(path: Path) -> str | None:
    text = files.text(path, 65536)
    match = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*(?:'([\d.]+)'|\"([\d.]+)\"|None)", text, re.MULTILINE)
    return (match[1] or match[2] or "") if match else None
