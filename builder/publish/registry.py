"""Registries: look up, fetch, push and tag, all of it by oras.

`docker login` or `skopeo login` keeps the login: oras reads the same file, and no name or password passes through here.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from builder.base import errors, process
from builder.base.project import sha256
from builder.image.oci import DIGEST
from builder.publish import refusal
from builder.publish.reference import Repository
from builder.publish.refusal import UnusableError

LARGEST = 64 << 20  # bytes that are fetched into memory: manifests, envelopes
PATIENCE = 120.0  # seconds for one look-up; a push has no limit
TRIES = 3  # after a crash of oras


# --- look up and fetch ---------------------------------------------------------------------------------------------


def resolve(repository: Repository, tag: str) -> str | None:
    """The digest that a tag names; None when there is no such tag. Raises NetworkError."""
    result = _oras(repository, "resolve", f"{repository}:{tag}")
    if result is None:
        return None
    digest = result.stdout.strip()
    if not DIGEST.fullmatch(digest):
        raise refusal.no_registry(repository, f"it gives {refusal.clean(digest)!r} for a digest")
    return digest


def manifest(repository: Repository, name: str) -> bytes | None:
    """The bytes of a manifest, by its digest or a tag; None when it is not there. Raises NetworkError."""
    by_digest = DIGEST.fullmatch(name)
    content = _fetch(repository, "manifest", f"{repository}{'@' if by_digest else ':'}{name}", LARGEST)
    if content is not None and by_digest and sha256(content) != name:
        raise refusal.no_registry(repository, f"it serves other bytes for {name}")
    return content


def blob(repository: Repository, digest: str, size: int | None = None) -> bytes:
    """The bytes of a blob, checked. Raises NetworkError; UnusableError when it is missing or larger than `size`."""
    limit = LARGEST if size is None else min(size, LARGEST)
    content = _fetch(repository, "blob", f"{repository}@{digest}", limit)
    if content is None:
        raise refusal.no_registry(repository, f"it lacks {digest}, which a manifest there names", UnusableError)
    if sha256(content) != digest:
        raise refusal.no_registry(repository, f"it serves other bytes for {digest}")
    return content


def _fetch(repository: Repository, kind: str, where: str, limit: int) -> bytes | None:
    """What oras writes into a pipe; None when it is not there. Bytes beyond the limit are never read, nor stored."""
    argv = ["oras", kind, "fetch", "--output", "-", where, *_options(repository)]
    with process.running(argv) as child:
        assert child.stdout is not None and child.stderr is not None
        late = threading.Timer(PATIENCE, child.kill)
        late.start()
        try:
            with os.fdopen(child.stdout.fileno(), "rb", closefd=False) as pipe:
                content = pipe.read(limit + 1)
            if len(content) > limit:
                what = f"it sends more than {limit} bytes for {where}, where a small file was asked for"
                raise refusal.no_registry(repository, what, UnusableError)
            stderr, code = child.stderr.read(), child.wait()
        finally:
            late.cancel()
    if code < 0:
        raise refusal.silent(repository, f"no answer within {PATIENCE:.0f} seconds")
    if code != 0:
        _refuse(repository, stderr)
    return content if code == 0 else None


def _refuse(repository: Repository, output: str) -> None:
    """Raises the error that oras had, unless it is that there is no such thing."""
    if not refusal.ABSENT.search(output):
        raise refusal.explain(repository, output)


# --- push and tag --------------------------------------------------------------------------------------------------


def push(repository: Repository, layout: Path, digest: str, tag: str | None = None) -> None:
    """Push a manifest of an OCI layout and all that it names, byte for byte; under its digest alone, or a tag too."""
    # oras reads FOLDER@DIGEST: a folder's path could be misread, its name cannot.
    source, target = f"{layout.name}@{digest}", f"{repository}:{tag}" if tag else f"{repository}@{digest}"
    _copy(repository, layout.parent, "--from-oci-layout", *_options(repository, "to-"), source, target)


def save(repository: Repository, digest: str, layout: Path) -> None:
    """Fetch an image, and all that refers to it, into an OCI layout."""
    source, target = f"{repository}@{digest}", f"{layout.name}@{digest}"
    _copy(
        repository, layout.parent, "--recursive", "--to-oci-layout", *_options(repository, "from-"), source, target
    )  # fmt: skip


def _copy(repository: Repository, folder: Path, *argv: str) -> None:
    result = process.run(["oras", "cp", "--no-tty", *argv], cwd=folder)
    for _ in range(TRIES):
        if result.returncode == 0 or not refusal.CRASH.search(result.output):
            break
        # oras 1.2.0 dies when two transfers fail in different ways at once. One at a time, it mostly prints the reason.
        result = process.run(["oras", "cp", "--concurrency", "1", "--no-tty", *argv], cwd=folder)
    if result.returncode != 0:
        raise refusal.explain(repository, result.output)


def tag(repository: Repository, digest: str, name: str) -> None:
    """Let a tag name a manifest that is there."""
    if _oras(repository, "tag", f"{repository}@{digest}", name) is None:
        raise refusal.no_registry(repository, f"it lacks {digest}, which was pushed a moment ago")


# --- oras ----------------------------------------------------------------------------------------------------------


def _oras(repository: Repository, *argv: str) -> process.Result | None:
    """Run oras on one reference; None when the registry answers that there is no such thing."""
    whole = ["oras", *argv, *_options(repository)]
    try:
        result = process.run(whole, timeout=PATIENCE)
    except errors.MissingToolError:
        raise
    except errors.VettedError as error:
        raise refusal.silent(repository, f"no answer within {PATIENCE:.0f} seconds") from error
    if result.returncode == 0:
        return result
    _refuse(repository, result.output)
    return None


def _options(repository: Repository, prefix: str = "") -> list[str]:
    auth = login()
    return [
        *([f"--{prefix}plain-http"] if repository.plain else []),
        *([f"--{prefix}registry-config={auth}"] if auth else []),
    ]


def login() -> str | None:
    """The file of skopeo's and podman's logins, when oras must be told of it: oras itself looks for Docker's alone."""
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        return named
    if not (configured := os.environ.get("DOCKER_CONFIG")) and not os.environ.get("HOME"):
        raise errors.BadInputError(
            "HOME is not set: where logins to registries are kept is not known",
            cause="a service, cron or a container that starts programs without it",
            next_step="export HOME=…, or DOCKER_CONFIG=… with the folder of config.json; then run this again",
        )
    docker = Path(configured or Path.home() / ".docker") / "config.json"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    skopeo = Path(runtime, "containers") if runtime else Path("/run/containers", str(os.getuid()))
    return str(skopeo / "auth.json") if (skopeo / "auth.json").is_file() and not docker.is_file() else None
