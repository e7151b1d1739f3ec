"""From a policy to the rules of registries' clients and clusters: policy."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import ownership, project
from builder.commands.common import AsJson, print_json
from builder.publish import keys
from builder.publish.policy import history, manifests, policyfile, rego, rule
from builder.publish.policy.rule import Rule

MARK = b"Written by `vetted policy`"  # in the first line of every file


def policy_(
    policy: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, such as policy.toml.")],
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Where the rules are written.", show_default=False)
    ],
    check: Annotated[bool, typer.Option("--check", help="Write nothing. Exit 1 when a file is stale.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a policy for cosign, policy-controller and Kyverno."""
    home = project.find()
    with tempfile.TemporaryDirectory(prefix="vetted-") as temporary, console.spinner("reading suites and locks"):
        resolved = rule.of(home, policyfile.read(policy), policy.absolute().parent, Path(temporary))
        public = keys.write(keys.trusted(home, resolved.keys), Path(temporary))
        files = _files(dataclasses.replace(resolved, keys=public))
    stale = [name for name, text in files.items() if not _is(output / name, text)]
    if not check:
        _write(output, {name: files[name] for name in stale})
    if not history.is_known(home):
        console.note("this folder has no git history: an advisory can withdraw only today's locks")
    if as_json:
        print_json(
            {
                "suites": resolved.suites, "hardware": resolved.hardware, "device": resolved.device,
                "withdrawn": len(resolved.withdrawn) + len(resolved.withdrawals), "files": list(files), "stale": stale,
            }
        )  # fmt: skip
    else:
        _print(resolved, output, files, stale, check=check)
    if check and stale:
        raise typer.Exit(1)


def _files(resolved: Rule) -> dict[str, str]:
    """The rules by the names of their files. A cluster must be told which images they are about."""
    files = {"cosign.rego": rego.render(resolved, "cosign")}
    if resolved.images:
        files["policy-controller.yaml"] = manifests.cluster_image_policy(resolved)
        files["kyverno.yaml"] = manifests.kyverno(resolved)
    return files


def _write(output: Path, files: dict[str, str]) -> None:
    """Write the rules. Raises StorageError before that when a file is somebody else's."""
    for name in files:
        ownership.refuse(
            output / name, lambda content: MARK in content[:200], "choose another --output, or move the file"
        )
    with tempfile.TemporaryDirectory(prefix="vetted-") as scratch:
        for name, text in files.items():
            project.write(output / name, text, Path(scratch))


def _is(path: Path, text: str) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_text(encoding="utf-8", errors="replace") == text


def _print(resolved: Rule, output: Path, files: dict[str, str], stale: list[str], *, check: bool) -> None:
    certain = sum(not withdrawal.published for withdrawal in resolved.withdrawals)
    console.out.print(
        f"suites {len(resolved.suites)}; hardware {' or '.join(resolved.hardware) or 'any'}; "
        f"locks withdrawn {len(resolved.withdrawn)} by the policy, {certain} by advisories"
    )
    for name in files:
        console.out.print(f"  {output / name}: {'unchanged' if name not in stale else 'stale' if check else 'written'}")
    if not resolved.images:
        console.note("`images` names no repository: there are no rules for a cluster")
    if check and stale:
        console.note("next: the same command without --check, then apply the files")
