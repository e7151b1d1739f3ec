"""uv resolves requirements to exact versions, for the Python and the platform of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builder.base import errors, machine, process
from builder.intent.stack import Stack

# The minor version of each Debian suite's glibc 2: no wheel may need a newer one.
GLIBC = {"bookworm": 36, "trixie": 41}


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
        "--python-platform", f"x86_64-manylinux_2_{GLIBC[stack.debian]}",
        "--no-annotate", "--no-header", *options,
    ]  # fmt: skip
    if backend := torch_backend(stack):
        argv += ["--torch-backend", backend]
    result = process.run(argv, env=machine.uv_environment(stack.torch), cwd=scratch)
    if result.returncode != 0 and isinstance(
        error := errors.from_tool("resolving the stack", result.output), (errors.NetworkError, errors.StorageError)
    ):
        raise error
    return result


def torch_backend(stack: Stack) -> str | None:
    """The PyTorch index to ask for a build such as 2.13.0+cpu; None when the wheelhouse has it already."""
    if stack.torch_backend is None or machine.in_wheelhouse("torch", stack.torch):
        return None
    return stack.torch_backend
