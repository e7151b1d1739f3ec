"""Applying a stack's patches: the same code on the host and, as a script, inside the image build.

It needs only the standard library and whatthepatch, so that the build can mount it into a bare image:
`python patches.py SITE_PACKAGES OUTPUT PATCH...` writes the patched files, and nothing else, below OUTPUT.
"""

from __future__ import annotations

import sys
from pathlib import Path

import whatthepatch


class PatchError(ValueError):
    """A patch does not apply exactly."""


def apply(site_packages: Path, output: Path, patches: list[Path]) -> list[Path]:
    """Write the patched copy of every file that `patches` touch below `output`; return their relative paths.

    Every context and removed line must stand in the file at the very line the patch says: no fuzz, no offset.
    `site_packages` itself is not written to (its files may be links into uv's cache). Raises PatchError.
    """
    written: dict[Path, None] = {}
    for patch in patches:
        diffs = list(whatthepatch.parse_patch(patch.read_text(encoding="utf-8")))
        if not diffs:
            raise PatchError(f"{patch.name}: holds no unified diff")
        for diff in diffs:
            if diff.header is None or not diff.changes:
                raise PatchError(f"{patch.name}: holds a diff without a file or without changes")
            path = Path(diff.header.new_path.removeprefix("b/"))
            if path.is_absolute() or ".." in path.parts:
                raise PatchError(f"{patch.name}: {path} leaves site-packages")
            source = output / path if path in written else site_packages / path
            try:
                text = source.read_text(encoding="utf-8")
                lines = whatthepatch.apply_diff(diff, text)
            except FileNotFoundError as error:
                raise PatchError(f"{patch.name}: {path} is not in this stack") from error
            except whatthepatch.exceptions.HunkException as error:
                raise PatchError(f"{patch.name}: does not apply exactly to {path}: {error}") from error
            target = output / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("\n".join(lines) + "\n" * text.endswith("\n"), encoding="utf-8")
            written[path] = None
    return list(written)


def main(site_packages: str, output: str, *patches: str) -> None:
    try:
        written = apply(Path(site_packages), Path(output), [Path(patch) for patch in patches])
    except PatchError as error:
        sys.exit(str(error))
    print("patched", *written)


if __name__ == "__main__":
    main(*sys.argv[1:])
