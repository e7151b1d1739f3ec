"""stack.toml: the intent, written by a person. Data, never code, and validated before anything uses it."""

from __future__ import annotations

import difflib
import re
import shlex
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from builder.base import errors, pins, text, tomlfile
from builder.base.project import Project
from builder.base.text import word
from builder.base.tomlfile import Line, Table
from builder.intent import values
from builder.intent.extension import Extends
from builder.intent.platform import AMD64, PLATFORMS, Platform

T = TypeVar("T", bound="Stack")
PatchFile = Annotated[str, AfterValidator(values.patch_file)]
ProbeName = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class Override(Table):
    """A deliberate departure from what a package declares."""

    requirement: Annotated[str, AfterValidator(values.requirement)]
    """A requirement that replaces all others on the same package, such as `numpy==2.4.1`. A marker that is never true
    leaves the package out: `torchvision ; sys_platform == 'never'`."""
    reason: Line
    """Why, in one line. The audit accepts a violated requirement only with a reason."""

    @property
    def package(self) -> str:
        return canonicalize_name(Requirement(self.requirement).name)


class Patch(Table):
    """A unified diff, relative to site-packages, for one distribution of the stack."""

    package: Annotated[str, AfterValidator(values.name)]
    """The distribution that is patched."""
    file: PatchFile
    """The patch: `images/patches/<package>/<version>/<name>.patch`. It must apply exactly, without fuzz."""
    reason: Line
    """Why, in one line: the symptom that it removes."""


class Stack(Table):
    """A version set."""

    title: Line
    """The stack's name for people, in one line."""
    device: Literal["cpu", "cuda"]
    """What the stack trains on. A CUDA stack's image also has the compilers that CUDA needs at run time."""
    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    """The Python version, such as `3.11`. The Debian release must have it."""
    debian: Literal["bookworm", "trixie"]
    """The Debian release that the base layer is made of."""
    platforms: Annotated[list[Literal["amd64", "arm64"]], AfterValidator(values.platforms)] = Field(default=["amd64"])
    """The processors that the stack is locked for, `["amd64"]` where nothing is said. Its image for `arm64` is built on
    amd64, and it is not certified: the suite runs on amd64."""
    requires: Annotated[list[Annotated[str, AfterValidator(values.pinned)]], Field(min_length=1)]
    """The distributions: an exact version (`trl==1.16.0`), or the bare name to let `vetted lock` choose. A local
    version such as `torch==2.13.0+cpu` comes from PyTorch's own index."""
    override: list[Override] = Field(default_factory=list)
    """Deliberate departures from what packages declare."""
    patch: list[Patch] = Field(default_factory=list)
    """Patches of installed distributions, in the order in which they are applied."""
    extends: Extends | None = None
    """The parent, in a stack that `vetted extend` made."""
    _sources: Path | None = PrivateAttr(default=None)

    @property
    def sources(self) -> Path | None:
        """A folder beside stack.toml with archives that no index has."""
        return self._sources

    def beside(self, sources: Path | None) -> Self:
        """The stack, with such a folder."""
        stack = self.model_copy()
        stack._sources = sources if sources and sources.is_dir() else None
        return stack

    @model_validator(mode="after")
    def _amd64(self) -> Self:
        if self.extends and self.platforms != [AMD64.name]:
            raise ValueError(f"a stack with [extends] is for {AMD64.name} alone; take `platforms` out")
        return self

    @property
    def packages(self) -> dict[str, str]:
        """The required distributions: normalised name -> requirement."""
        return {canonicalize_name(Requirement(r).name): r for r in self.requires}

    @property
    def pinned(self) -> dict[str, str]:
        """Those that are required at one version, which no upgrade moves: normalised name -> version."""
        return pins.read("\n".join(self.requires))

    @property
    def platform(self) -> Platform:
        """The platform that is meant where only one can be."""
        return PLATFORMS[self.platforms[0]]

    def on(self, platform: Platform) -> Self:
        """The stack, for one of its platforms alone."""
        return self.model_copy(update={"platforms": [platform.name]})

    @property
    def torch(self) -> str:
        """The pinned version of torch, such as 2.13.0+cpu; "" where there is none."""
        requirement = self.packages.get("torch")
        return (pins.exact(Requirement(requirement)) or "") if requirement else ""

    @property
    def torch_backend(self) -> str | None:
        """uv's name for the PyTorch index of a build such as 2.13.0+cpu."""
        match = re.fullmatch(r"[^+]+\+(cpu|cu\d+)", self.torch)
        return match[1] if match else None


class Expect(Table):
    """What makes a version set a control: the probes that must fail on it, and the change that makes it good.

    `reason` must be in the message of each of these probes: a control that breaks in another way is noticed. The change
    is another version of one distribution (`twin`), or patches that are applied to the same set (`patch`).
    """

    fails: Annotated[list[ProbeName], Field(min_length=1)]
    """The probes that must fail on this version set, and pass on its twin."""
    reason: Line
    """Words that must occur in what each of these probes says, so that another failure is noticed."""
    twin: Annotated[dict[str, str], AfterValidator(values.one_change)] | None = None
    """The one distribution and its version that make the version set good, such as `{ trl = "0.16.1" }`."""
    patch: Annotated[list[PatchFile], BeforeValidator(values.one_or_more), Field(min_length=1)] | None = None
    """The patch that makes the version set good; one alone may be a string. Either `twin` or `patch` is required."""

    @model_validator(mode="after")
    def _one_way(self) -> Expect:
        if (self.twin is None) == (self.patch is None):
            raise ValueError("exactly one of `twin` and `patch` must say what makes the control good")
        return self

    @property
    def change(self) -> str:
        """The change in one line: the distribution and its other version, or the patches."""
        if self.twin is not None:
            return " ".join(next(iter(self.twin.items())))
        return ", ".join(file.removeprefix("images/patches/") for file in self.patch or ())


class Control(Stack):
    """A version set that is known to be bad, and what makes it good."""

    expect: Expect
    """What the suite must find."""

    @property
    def good(self) -> Stack:
        """The twin: the same set with one distribution changed, or with the patches applied."""
        fields = {key: getattr(self, key) for key in Stack.model_fields}
        for name, version in (self.expect.twin or {}).items():
            packages = {**self.packages, canonicalize_name(name): f"{name}=={version}"}
            fields["requires"] = list(packages.values())
        added = [
            Patch(package=Path(file).parts[2], file=file, reason=self.expect.reason) for file in self.expect.patch or ()
        ]
        return Stack.model_validate({**fields, "patch": [*self.patch, *added]})


def load(project: Project, name: str) -> Stack:
    """Read and validate lockfiles/<name>/stack.toml. Raises BadInputError that names the file, the key and the fix."""
    return _load(Stack, project, "stack", name, project.stack_dir(name), names(project))


def load_control(project: Project, name: str) -> Control:
    """Read and validate lockfiles/controls/<name>/stack.toml. Raises BadInputError that names file, key and fix."""
    return _load(Control, project, "control", name, project.control_dir(name), control_names(project))


def _load(model: type[T], project: Project, kind: str, name: str, folder: Path, names: list[str]) -> T:
    command = "vetted list" if kind == "stack" else "vetted controls --help"
    if not values.NAME.fullmatch(name):
        plain = re.sub(r"[^a-z0-9.+_-]+", "-", name.lower()).strip(".+_-") or f"my-{kind}"
        raise errors.BadInputError(
            f"{text.line(name, 60)!r} is not a {kind}'s name: lower-case letters, digits and . + _ - only, at most 100",
            next_step=shlex.join(["mv", str(folder), str(folder.parent / plain)]) if name in names else command,
        )
    path = folder / "stack.toml"
    where = project.relative(path)
    try:
        stack = tomlfile.read(model, path, where)
    except FileNotFoundError as error:
        close = difflib.get_close_matches(name, names, n=1)
        own = f", nor is it in {project.own_stacks}" if kind == "stack" and project.own_stacks else ""
        raise errors.BadInputError(
            f"there is no {kind} {name}: {where} does not exist{own}{f'; did you mean {close[0]}?' if close else ''}",
            next_step=command,
        ) from error
    if (sources := folder / "sources").is_dir():
        stack._sources = sources
    patches = {f"patch[{number}].file": patch.file for number, patch in enumerate(stack.patch)}
    if isinstance(stack, Control):
        patches |= {f"expect.patch[{number}]": file for number, file in enumerate(stack.expect.patch or ())}
    for key, file in patches.items():
        if not (project.root / file).is_file():
            raise errors.BadInputError(
                f"{where}: `{key}`: {file} does not exist",
                next_step=f"add {word(file)}, or remove that {'patch' if 'expect' in key else '[[patch]]'} "
                f"from {word(where)}",
            )
    return stack


def names(project: Project) -> list[str]:
    """Every stack: the project's, and the user's own. Raises BadInputError when one name is in both folders."""
    own = own_names(project)
    if both := [name for name in own if (project.stacks / name / "stack.toml").exists()]:
        raise errors.BadInputError(
            f"the stack {both[0]} is in {project.relative(project.stacks)}/ and in {project.own_stacks}",
            next_step=f"mv {word(project.own_stacks)}/{word(both[0])} {word(project.own_stacks)}/my-{word(both[0])}",
        )
    return sorted([*shipped(project), *own])


def shipped(project: Project) -> list[str]:
    """The project's stacks, controls excluded: these the documents show."""
    return sorted(path.parent.name for path in project.stacks.glob("*/stack.toml"))


def own_names(project: Project) -> list[str]:
    """The user's own stacks, in the folder that VETTED_STACKS names. Raises BadInputError when it is no folder."""
    folder = project.own_stacks
    if folder is None:
        return []
    if not folder.is_dir():
        raise errors.BadInputError(
            f"{folder}, which VETTED_STACKS or --stacks names, is not a folder", next_step=f"mkdir -p {word(folder)}"
        )
    return sorted(path.parent.name for path in folder.glob("*/stack.toml"))


def control_names(project: Project) -> list[str]:
    """Every control of the project."""
    return sorted(path.parent.name for path in (project.root / "lockfiles" / "controls").glob("*/stack.toml"))
