"""The names of a platform: those of the files of its locks."""

from __future__ import annotations

from builder.intent.platform import AMD64, ARM64


def test_files_for_amd64_have_no_platform_in_their_names() -> None:
    assert [AMD64.file(name) for name in ("debian.txt", "Dockerfile")] == ["debian.txt", "Dockerfile"]
    assert [ARM64.file(name) for name in ("debian.txt", "Dockerfile")] == ["debian.arm64.txt", "Dockerfile.arm64"]
    assert ARM64.docker == "linux/arm64" and ARM64.libraries == "/usr/lib/aarch64-linux-gnu"
