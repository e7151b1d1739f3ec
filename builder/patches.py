"""Applying a stack's patches: the same code on the host and, as a script, inside the image build.

It needs only the standard library and unidiff, so that the build can mount it into a bare image:
`python patches.py SITE_PACKAGES OUTPUT PATCH...` writes the patched files, and nothing else, below OUTPUT.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchedFile, PatchSet


class PatchError(ValueError):
    """A patch does not apply exactly."""


def apply(site_packages: Path, output: Path, patches: list[Path]) -> list[Path]:
    """Write the patched copy of every file that `patches` touch below `output`; return their relative paths.

    Every context and removed line must stand in the file at the very line the patch says: no fuzz, no offset.
    `site_packages` itself is not written to (its files may be links into uv's cache). Raises PatchError.
    """
    written: dict[Path, None] = {}
    for patch in patches:
        for diff in _parse(patch):
            path = Path(diff.path)
            if path.is_absolute() or ".." in path.parts:
                raise PatchError(f"{patch.name}: {path} leaves site-packages")
            source = output / path if path in written else site_packages / path
            try:
                content = _patched(source.read_bytes().decode(), diff)
            except FileNotFoundError as error:
                raise PatchError(f"{patch.name}: {path} is not in this stack") from error
            except UnicodeDecodeError as error:
                raise PatchError(f"{patch.name}: {path} is not UTF-8 text") from error
            except PatchError as error:
                raise PatchError(f"{patch.name}: does not apply exactly to {path}: {error}") from error
            target = output / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode())
            written[path] = None
    return list(written)


def _parse(patch: Path) -> list[PatchedFile]:
    try:
        diffs = list(PatchSet(io.StringIO(patch.read_bytes().decode(), newline="\n")))
    except (UnidiffParseError, UnicodeDecodeError) as error:
        raise PatchError(f"{patch.name}: not a unified diff: {error}") from error
    if not any(len(diff) for diff in diffs):
        raise PatchError(f"{patch.name}: holds no unified diff")
    return diffs


def _patched(text: str, diff: PatchedFile) -> str:
    """The text with every hunk applied. Lines end at a newline only, whatever else Python calls a line's end."""
    lines = list(io.StringIO(text, newline="\n"))
    result: list[str] = []
    read = 0
    for hunk in diff:
        # A hunk that takes away nothing names the line it comes after; any other the line it begins with.
        start = hunk.source_start - (1 if hunk.source_length else 0)
        if not read <= start <= len(lines):
            raise PatchError(f"the file has {len(lines)} lines, and a hunk is for line {hunk.source_start}")
        result += lines[read:start]
        read = start
        for line in hunk:
            if line.is_added:
                result.append(line.value)
            elif line.line_type in (" ", "-"):
                found = lines[read] if read < len(lines) else "the end of the file"
                if found.removesuffix("\n") != line.value.removesuffix("\n"):
                    raise PatchError(f"line {read + 1} is {found.rstrip()!r}, not {line.value.rstrip()!r}")
                if line.is_context:
                    result.append(found)
                read += 1
    return "".join(result + lines[read:])


def main(site_packages: str, output: str, *patches: str) -> None:
    try:
        written = apply(Path(site_packages), Path(output), [Path(patch) for patch in patches])
    except PatchError as error:
        sys.exit(str(error))
    print("patched", *written)


if __name__ == "__main__":
    main(*sys.argv[1:])
