"""What the tests of preflight share: the files of a container."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

from runtime import preflight

OF_THIS_IMAGE = {"lock": "sha256:" + "a" * 64, "runtime": "sha256:" + "b" * 64}
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Jan  1 00:00:00 UTC 2026\nGCC version: 12\n"


class Machine:
    """The files of a container that preflight looks at."""

    def __init__(self, root: Path, distributions: Mapping[str, str], driver: str | None = None, gpus: int = 0) -> None:
        self.root = root
        description = {"stack": "tiny", **OF_THIS_IMAGE, "distributions": dict(distributions)}
        self.write("etc/vetted/stack.json", json.dumps(description))
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\n")
        (root / "dev/shm").mkdir(parents=True)
        (root / "runs").mkdir()
        if driver:
            self.write("proc/driver/nvidia/version", VERSION.format(driver))
            self.write("usr/lib/x86_64-linux-gnu/libcuda.so.1", "")
        for number in range(gpus):
            self.write(f"proc/driver/nvidia/gpus/0000:0{number}/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def gpu(self, number: int, minor: int) -> None:
        fields = f"Model: \t\t NVIDIA H{number}\nGPU UUID: \t GPU-{number}f00\nDevice Minor: \t {minor}\n"
        self.write(f"proc/driver/nvidia/gpus/0000:0{number}/information", fields)
        self.write(f"dev/nvidia{minor}", "")

    def judged(self, hardware: str = "", expires: int = 1, issued: int = 0, **other: object) -> None:
        """Write a verdict as `vetted use` does, on this image and machine except for the arguments; days from today."""
        today = datetime.datetime.now(datetime.UTC).date()
        certificate = {
            "hardware": hardware or preflight.hardware(self.root, []), "file": "0.json",
            "issued": str(today + datetime.timedelta(issued)), "expires": str(today + datetime.timedelta(expires)),
        }  # fmt: skip
        document = {
            "image": "sha256:" + "c" * 64, "stack": "tiny", **OF_THIS_IMAGE, "judged": str(today),
            "certificates": [certificate], **other,
        }  # fmt: skip
        self.write("run/vetted/certificates.json", json.dumps(document))

    def checks(self, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        return [(check.level, str(check)) for check in preflight.look(self.root, environ or {})]

    def stops(self) -> list[str]:
        return [text for level, text in self.checks() if level == "stop"]
