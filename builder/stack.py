"""stack.toml: the intent, written by a person. Data, never code; validated before anything uses it."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from builder import errors
from builder.project import Project

NAME = re.compile(r"[a-z0-9][a-z0-9.+_-]*")


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("must be one line of printable text")
    return value


def _requirement(value: str) -> str:
    try:
        parsed = Requirement(_one_line(value))
    except InvalidRequirement as error:
        raise ValueError(f"{value!r} is not a requirement: {str(error).splitlines()[0]}") from error
    if parsed.url:
        raise ValueError(f"{value!r} names a URL; a lock names no host: pin a version instead")
    return value


def _pinned(value: str) -> str:
    specifiers = list(Requirement(_requirement(value)).specifier)
    if len(specifiers) > 1 or any(s.operator not in ("==", "===") or s.version.endswith("*") for s in specifiers):
        raise ValueError(f"{value!r}: write an exact version (name==1.2.3), or the bare name to let the lock choose")
    return value


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a name: lower-case letters, digits and . + _ - only")
    return value


def _patch_file(value: str) -> str:
    path = Path(value)
    if path.is_absolute() or ".." in path.parts or path.parts[:2] != ("images", "patches"):
        raise ValueError(f"{value!r} must lie under images/patches/, without ..")
    if not all(NAME.fullmatch(part) for part in path.parts) or path.suffix != ".patch":
        raise ValueError(f"{value!r} must be a plain path that ends in .patch")
    return value


Line = Annotated[str, AfterValidator(_one_line)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Override(_Model):
    """A deliberate departure from what a package declares."""

    requirement: Annotated[str, AfterValidator(_requirement)]
    reason: Line

    @property
    def package(self) -> str:
        return canonicalize_name(Requirement(self.requirement).name)


class Patch(_Model):
    """A unified diff, relative to site-packages, for one distribution of the stack."""

    package: Annotated[str, AfterValidator(_name)]
    file: Annotated[str, AfterValidator(_patch_file)]
    reason: Line


class Stack(_Model):
    title: Line
    device: Literal["cpu", "cuda"]
    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    debian: Literal["bookworm", "trixie"]
    requires: Annotated[list[Annotated[str, AfterValidator(_pinned)]], Field(min_length=1)]
    override: list[Override] = []
    patch: list[Patch] = []

    @property
    def packages(self) -> dict[str, str]:
        """The required distributions: normalised name -> requirement."""
        return {canonicalize_name(Requirement(r).name): r for r in self.requires}

    @property
    def torch_backend(self) -> str | None:
        """uv's name for the PyTorch index that a local version such as 2.13.0+cpu comes from."""
        match = re.fullmatch(r"torch==[^+]+\+(cpu|cu\d+)", self.packages.get("torch", ""))
        return match[1] if match else None


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {"override": Override, "patch": Patch}
    model = tables.get(str(location[0]), Stack) if len(location) > 1 else Stack
    return list(model.model_fields)


def _explain(path: str, error: ValidationError) -> errors.BadInputError:
    """One line per finding: the key and what is wrong with it; the fix of the first one."""
    lines, fix = [], ""
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            known = _known_keys(location)
            close = difflib.get_close_matches(str(location[-1]), known, n=1)
            message = "unknown key" + (f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(known)}")
            fix = fix or f"rename or remove `{key}` in {path}"
        lines.append(f"{path}: `{key}`: {message}")
        fix = fix or f"correct `{key}` in {path}"
    return errors.BadInputError("\n".join(lines), next_step=fix)


def load(project: Project, name: str) -> Stack:
    """Read and validate lockfiles/<name>/stack.toml. Raises BadInputError that names file, key and fix."""
    if not NAME.fullmatch(name):
        raise errors.BadInputError(
            f"{name!r} is not a stack's name: lower-case letters, digits and . + _ - only", next_step="vetted list"
        )
    path = project.stack_dir(name) / "stack.toml"
    where = project.relative(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        close = difflib.get_close_matches(name, names(project), n=1)
        raise errors.BadInputError(
            f"there is no stack {name}: {where} does not exist" + (f"; did you mean {close[0]}?" if close else ""),
            next_step="vetted list",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.BadInputError(f"{where}: not TOML: {error}", next_step=f"correct {where}") from error
    try:
        stack = Stack.model_validate(data)
    except ValidationError as error:
        raise _explain(where, error) from error
    for number, patch in enumerate(stack.patch):
        if not (project.root / patch.file).is_file():
            raise errors.BadInputError(
                f"{where}: `patch[{number}].file`: {patch.file} does not exist",
                next_step=f"add {patch.file}, or remove that [[patch]] from {where}",
            )
    return stack


def names(project: Project) -> list[str]:
    """Every stack of the project, controls excluded."""
    return sorted(path.parent.name for path in (project.root / "lockfiles").glob("*/stack.toml"))
