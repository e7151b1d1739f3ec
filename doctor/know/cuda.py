"""What is known of CUDA: the drivers that run it, the torch and the bitsandbytes that are built for it."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path

from doctor.base import versions
from doctor.read import files
from doctor.read.environment import Environment

TABLES = json.loads(pkgutil.get_data("doctor.know", "cuda.json") or b"")  # with its date, and the source of each table
# The first driver branch of each CUDA major. A driver runs every minor version of its majors. runtime/preflight.py has
# the same table.
DRIVERS: dict[int, int] = {int(major): branch for major, branch in TABLES["drivers"].items()}
# The CUDA of torch's wheels on the default index; a local version such as +cu128 or +cpu says it itself.
TORCH: list[tuple[str, str]] = [(releases, cuda) for releases, cuda in TABLES["torch"]]
# The index of torch that has wheels for an older CUDA major, and the releases there.
OLDER: dict[int, tuple[str, str]] = {int(major): (name, range_) for major, (name, range_) in TABLES["older"].items()}
# The first and the last flash-attn whose releases have a wheel for a torch. Its installation takes that wheel; for any
# other torch it compiles for hours. 2.8 has wheels for torch 2.4 to 2.6 too, which lack a symbol in several reports;
# 2.7 works there.
FLASH_ATTN: dict[str, tuple[str, str]] = {torch: (first, last) for torch, (first, last) in TABLES["flash_attn"].items()}
# The first bitsandbytes with a binary for a CUDA.
BITSANDBYTES: dict[str, str] = TABLES["bitsandbytes"]


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
