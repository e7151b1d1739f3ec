"""The processors that a stack can be locked and built for, by each of their names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """A processor architecture: `name` is Docker's and Debian's, `machine` that of wheels and of the kernel."""

    name: str
    machine: str
    elf: int  # e_machine in the header of its programs and libraries

    @property
    def docker(self) -> str:
        """The platform in an image index."""
        return f"linux/{self.name}"

    @property
    def libraries(self) -> str:
        """The folder where Debian keeps its libraries, which has the name of GNU's system type."""
        return f"/usr/lib/{self.machine}-linux-gnu"

    def file(self, name: str) -> str:
        """The file of a lock or a build that is for this platform: requirements.txt, requirements.arm64.txt."""
        stem, _, suffix = name.partition(".")
        return name if self is AMD64 else f"{stem}.{self.name}{f'.{suffix}' if suffix else ''}"


AMD64 = Platform("amd64", "x86_64", 62)
ARM64 = Platform("arm64", "aarch64", 183)
PLATFORMS = {platform.name: platform for platform in (AMD64, ARM64)}
