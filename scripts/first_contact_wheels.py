"""Collects the wheels for a first contact: what the suite needs of a stack and a borrowed machine does not have.

    python3 -m scripts.first_contact_wheels STACK --have freeze.txt --python 3.12 --to FOLDER [--part MB]

freeze.txt is what `scripts/first_contact.py look` brought back. What the machine has is used as it is there. The wheels
lie in numbered parts, because a transfer to the machine has a limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from builder.base import errors, machine, project, quantities
from builder.lock import lockfile

# What trains, in the order of its worth; the machine brings torch.
WANTED = ("trl", "datasets", "deepspeed", "bitsandbytes", "peft", "transformers", "accelerate")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stack")
    parser.add_argument("--have", type=Path, required=True, help="the machine's distributions: NAME==VERSION lines")
    parser.add_argument("--python", required=True, help="the version of the machine's Python, such as 3.12")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--part", type=int, default=54, metavar="MB", help="the most that one transfer takes")
    options = parser.parse_args()
    try:
        lock = lockfile.load(project.find(), options.stack)
        present = {line.partition("==")[0] for line in options.have.read_text().split()}
        return bring(missing(lock.versions, present, options.python), options.python, options.to, options.part * 10**6)
    except (errors.VettedError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    except subprocess.CalledProcessError as error:
        print(f"{error.stderr or error}\nusual cause: no package index answers", file=sys.stderr)
        return 5


def bring(pins: list[str], python: str, folder: Path, part: int) -> int:
    """Collect the wheels of pins in parts of a folder, and say which."""
    folder.mkdir(parents=True, exist_ok=True)
    for pin in pins:
        print(pin, flush=True)
        collect(pin, python, folder)
    divide(folder, part)
    return 0


def divide(folder: Path, most: int) -> None:
    """Move the wheels of a folder to its subfolders 1, 2 …, each of `most` bytes, or of one larger wheel."""
    sizes: list[int] = []
    for wheel in sorted(folder.glob("*.whl"), key=lambda file: -file.stat().st_size):
        size = wheel.stat().st_size
        part = next((number for number, taken in enumerate(sizes) if taken + size <= most), len(sizes))
        if part == len(sizes):
            sizes.append(0)
        sizes[part] += size
        target = folder / str(part + 1)
        target.mkdir(exist_ok=True)
        wheel.rename(target / wheel.name)
    for number, taken in enumerate(sizes, 1):
        print(f"{folder / str(number)}: {quantities.size(taken)}")


def missing(versions: dict[str, str], present: set[str], python: str) -> list[str]:
    """The pins that the wanted distributions of a lock need besides those present, resolved for that Python."""
    requirements = [f"{name}=={versions[name].partition('+')[0]}" for name in WANTED if name not in present]
    if not requirements:
        return []
    with tempfile.TemporaryDirectory() as folder:
        # Whatever the machine has counts as fulfilled.
        override = Path(folder, "override.txt")
        override.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in sorted({*present, "torch"})))
        done = subprocess.run(
            [
                machine.uv_binary(), "pip", "compile", "-", "--override", str(override), "--python-version", python,
                "--python-platform", "x86_64-manylinux_2_28", "--no-annotate", "--no-header", "--quiet",
            ],
            input="\n".join(requirements), check=True, capture_output=True, text=True,
        )  # fmt: skip
    return done.stdout.split()


def collect(pin: str, python: str, folder: Path) -> None:
    """Download the wheel of a pin, or build it where there is none: without operators that need a GPU's compiler."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    binary = ["--only-binary", ":all:", "--python-version", python, *(f"--platform={name}" for name in PLATFORMS)]
    done = subprocess.run(
        [*pip, "download", "--no-deps", *binary, "--dest", str(folder), pin], capture_output=True, check=False
    )
    if done.returncode != 0:
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), pin], check=True)


if __name__ == "__main__":
    sys.exit(main())
