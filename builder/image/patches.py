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
        text = patch.read_bytes().decode()
        diffs = list(PatchSet(io.StringIO(text, newline="\n")))
    except (UnidiffParseError, UnicodeDecodeError) as error:
        raise PatchError(f"{patch.name}: not a unified diff: {error}") from error
    if not any(len(diff) for diff in diffs):
        raise PatchError(f"{patch.name}: holds no unified diff")
    for diff in diffs:
        if "/dev/null" in (diff.source_file, diff.target_file) or diff.is_rename:
            raise PatchError(f"{patch.name}: {diff.path} is added, removed or renamed; a patch may only change files")
    # What a hunk holds beyond the count in its header would be dropped without a word.
    lines = sum(line.line_type in "+- " for diff in diffs for hunk in diff for line in hunk)
    if lines != _body_lines(text):
        raise PatchError(f"{patch.name}: a hunk holds other lines than its header says")
    return diffs


def _body_lines(text: str) -> int:
    """How many lines of hunks a patch holds, whatever their headers say."""
    count, inside = 0, False
    lines = text.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("@@"):
            inside = True
        elif line.startswith("diff ") or (line.startswith("--- ") and following.startswith("+++ ")):
            inside = False
        elif inside and line[:1] in ("+", "-", " "):
            count += 1
    return count


def _patched(text: str, diff: PatchedFile) -> str:
    """The text with every hunk applied.

    Lines end at a newline only, whatever else Python calls a line's end; whether the last one does stays as it was.
    """
    lines = text.split("\n")
    end = len(lines) - text.endswith("\n")
    result: list[str] = []
    read = 0
    for hunk in diff:
        # A hunk that takes away nothing names the line it comes after; any other the line it begins with.
        start = hunk.source_start - (1 if hunk.source_length else 0)
        if not read <= start <= end:
            raise PatchError(f"the file has no line {hunk.source_start} where a hunk is for it")
        result += lines[read:start]
        read = start
        for line in hunk:
            expected = line.value.removesuffix("\n")
            if line.is_added:
                result.append(expected)
            elif line.line_type in (" ", "-"):
                actual = lines[read] if read < len(lines) else None
                if actual != expected:
                    raise PatchError(f"line {read + 1} is {actual!r}, not {expected!r}")
                if line.is_context:
                    result.append(expected)
                read += 1
    return "\n".join(result + lines[read:])


def main(site_packages: str, output: str, *patches: str) -> None:
    try:
        written = apply(Path(site_packages), Path(output), [Path(patch) for patch in patches])
    except PatchError as error:
        sys.exit(str(error))
    print("patched", *written)


if __name__ == "__main__":
    main(*sys.argv[1:])
