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
TORCH = (("<2.5", "12.1"), (">=2.5,<2.7", "12.4"), (">=2.7,<2.8", "12.6"), (">=2.8,<2.11", "12.8"),
         (">=2.11,<2.14", "13.0"), (">=2.14", "13.2"))  # fmt: skip
# The index of torch that has wheels for an older CUDA major, and the releases there: torch dropped CUDA 11.8 after 2.7
# and keeps 12.6 to 2.14 (pytorch/pytorch#190355, #190385).
OLDER = {11: ("cu118", ">=2.0,<2.8"), 12: ("cu126", ">=2.6,<2.15")}
# The first and the last flash-attn whose releases have a wheel for a torch, from .github/workflows/publish.yml of its
# tags v2.3.0 to v2.8.3.post1. Its installation takes that wheel; for any other torch it compiles for hours. 2.8 has
# wheels for torch 2.4 to 2.6 too, which lack a symbol in several reports (Dao-AILab/flash-attention#1832,
# axolotl-ai-cloud/axolotl#3142); 2.7 works there.
FLASH_ATTN = {
    "2.0": ("2.3.0", "2.6.3"), "2.1": ("2.3.1.post1", "2.7.4"), "2.2": ("2.5.2", "2.7.4.post1"),
    "2.3": ("2.5.8", "2.7.4.post1"), "2.4": ("2.6.3", "2.7.4.post1"), "2.5": ("2.7.0", "2.7.4.post1"),
    "2.6": ("2.7.4", "2.7.4.post1"), "2.7": ("2.8.0", "2.8.3.post1"), "2.8": ("2.8.3", "2.8.3.post1"),
}  # fmt: skip
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


def short(cuda: str | None) -> str:
    """A CUDA as the index of torch writes it: cu128 for "12.8", cpu for none; empty where it is not known."""
    return "" if cuda is None else f"cu{cuda.replace('.', '')}" if cuda else "cpu"


def flash_attn_for(torch: str) -> str | None:
    """The range of flash-attn that has a wheel for a torch; None where none is known."""
    version = versions.parse(torch)
    first, last = FLASH_ATTN.get(f"{version.major}.{version.minor}" if version else "", ("", ""))
    return f">={first},<={last}" if first else None


def major(cuda: str | None) -> int | None:
    """12 of "12.8"; None where it is empty or not known."""
    number = (cuda or "").partition(".")[0]
    return int(number) if number.isdigit() else None


def torch_family(package: str, torch: str) -> str | None:
    """The minor version of torchvision or torchaudio that belongs to a torch 1.x or 2.x."""
    version = versions.parse(torch)
    if version is None or version.major not in (1, 2):
        return None
    if package == "torchvision":
        return f"0.{version.minor + (15 if version.major == 2 else 1)}"
    return f"{2 if version.major == 2 else 0}.{version.minor}" if package == "torchaudio" else None


def _of_version_file(path: Path) -> str | None:
    text = files.text(path, 65536)
    match = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*(?:'([\d.]+)'|\"([\d.]+)\"|None)", text, re.MULTILINE)
    return (match[1] or match[2] or "") if match else None
