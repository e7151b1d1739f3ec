"""Registries: what is looked up, fetched and pushed there, all of it by oras, and what their refusals mean.

Who is logged in is the affair of `docker login` or `skopeo login`: oras reads the same file, and no name or password
passes through here.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process
from builder.base import text as texts
from builder.base.project import sha256
from builder.image.oci import DIGEST

HOST = r"(?:[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
REPOSITORY = re.compile(rf"(?P<host>{HOST})/(?P<path>{PATH}(?:/{PATH})*)")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LONGEST = 255  # of a repository's name
LARGEST = 64 << 20  # of what is fetched into memory: manifests, envelopes
PATIENCE = 120.0  # seconds for one look-up; a push may take as long as it takes


@dataclass(frozen=True)
class Repository:
    """A place in a registry that holds images. `plain`: spoken to without TLS."""

    host: str
    path: str
    plain: bool

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"


@dataclass(frozen=True)
class Reference:
    """An image in a registry, by its tag or its digest; where both are given, the digest decides."""

    repository: Repository
    tag: str | None
    digest: str | None

    def __str__(self) -> str:
        return f"{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")


def parse(text: str, *, insecure: bool) -> Repository:
    """HOST/PATH. Raises ValueError. Without `insecure`, only a registry on this very machine is spoken to in plain."""
    match = REPOSITORY.fullmatch(text)
    if match is None or len(text) > LONGEST or not _is_host(match["host"]):
        raise ValueError(f"{text!r} is not HOST/PATH, such as registry.example.org/team/vetted")
    return Repository(match["host"], match["path"], insecure or _is_loopback(match["host"]))


def parse_reference(text: str, *, insecure: bool) -> Reference:
    """HOST/PATH:TAG or HOST/PATH@sha256:…, or both. Raises ValueError."""
    name, _, digest = text.partition("@")
    if digest and not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is not a digest, sha256: and 64 hexadecimal digits")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # a colon before the last slash is that of a port
        head, tag = name, ""
    elif not TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} is not a tag")
    if not tag and not digest:
        raise ValueError(f"{text!r} names no image: HOST/PATH:TAG or HOST/PATH@sha256:…")
    return Reference(parse(head, insecure=insecure), tag or None, digest or None)


def _is_host(host: str) -> bool:
    # As Docker reads it: the first part of a name is a host only if it looks like one.
    port = re.search(r":([0-9]+)$", host.rpartition("]")[2])
    return ("." in host or ":" in host or host == "localhost") and (port is None or 0 < int(port[1]) < 65536)


def _is_loopback(host: str) -> bool:
    name = re.sub(r":[0-9]+$", "", host) if not host.endswith("]") else host
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


# --- looking up and fetching ---------------------------------------------------------------------------------------


def resolve(repository: Repository, tag: str) -> str | None:
    """The digest that a tag names; None when there is no such tag."""
    result = _oras(repository, "resolve", f"{repository}:{tag}")
    if result is None:
        return None
    digest = result.stdout.strip()
    if not DIGEST.fullmatch(digest):
        raise rubbish(repository, f"it gives {clean(digest)!r} for a digest")
    return digest


class UnusableError(errors.NetworkError):
    """A registry has something, and it is not what a manifest there says: whoever may push can bring that about."""


def manifest(repository: Repository, name: str) -> bytes | None:
    """The bytes of a manifest, by its digest or a tag; None when it is not there."""
    by_digest = DIGEST.fullmatch(name)
    content = _fetch(repository, "manifest", f"{repository}{'@' if by_digest else ':'}{name}", LARGEST)
    if content is not None and by_digest and sha256(content) != name:
        raise rubbish(repository, f"it serves other bytes for {name}")
    return content


def blob(repository: Repository, digest: str, size: int | None = None) -> bytes:
    """The bytes of a blob, checked. Raises NetworkError; UnusableError when it is not there or larger than said."""
    limit = LARGEST if size is None else min(size, LARGEST)
    content = _fetch(repository, "blob", f"{repository}@{digest}", limit)
    if content is None:
        raise rubbish(repository, f"it lacks {digest}, which a manifest there names", UnusableError)
    if sha256(content) != digest:
        raise rubbish(repository, f"it serves other bytes for {digest}")
    return content


def _fetch(repository: Repository, kind: str, where: str, limit: int) -> bytes | None:
    """What oras writes into a pipe; None when it is not there. What is too much is never read, to no disk either."""
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
                raise rubbish(repository, what, UnusableError)
            said, code = child.stderr.read(), child.wait()
        finally:
            late.cancel()
    if code < 0:
        raise _silent(repository, f"no answer within {PATIENCE:.0f} seconds")
    if code != 0:
        _refuse(repository, said)
    return content if code == 0 else None


def _refuse(repository: Repository, output: str) -> None:
    """Raises the error that oras had, unless it is that there is no such thing."""
    if not ABSENT.search(output):
        raise explain(repository, output)


# --- pushing -------------------------------------------------------------------------------------------------------


def push(repository: Repository, layout: Path, digest: str, tag: str | None = None) -> None:
    """Push a manifest of an OCI layout and all that it names, byte for byte; under its digest alone, or a tag too."""
    # oras reads FOLDER@DIGEST: the folder is given as a name beside which nothing can be misread.
    source, target = f"{layout.name}@{digest}", f"{repository}:{tag}" if tag else f"{repository}@{digest}"
    _copy(repository, layout.parent, "--from-oci-layout", *_options(repository, "to-"), source, target)


def _copy(repository: Repository, folder: Path, *argv: str) -> None:
    result = process.run(["oras", "cp", "--no-tty", *argv], cwd=folder)
    if result.returncode != 0 and "panic:" in result.output:
        # oras 1.2.0 dies when two transfers fail in different ways at once. One at a time, the reason is heard.
        result = process.run(["oras", "cp", "--concurrency", "1", "--no-tty", *argv], cwd=folder)
    if result.returncode != 0:
        raise explain(repository, result.output)


def tag(repository: Repository, digest: str, name: str) -> None:
    """Let a tag name a manifest that is there."""
    if _oras(repository, "tag", f"{repository}@{digest}", name) is None:
        raise rubbish(repository, f"it lacks {digest}, which was pushed a moment ago")


def save(repository: Repository, digest: str, layout: Path) -> None:
    """Fetch an image, and all that refers to it, into an OCI layout."""
    source, target = f"{repository}@{digest}", f"{layout.name}@{digest}"
    _copy(
        repository, layout.parent, "--recursive", "--to-oci-layout", *_options(repository, "from-"), source, target
    )  # fmt: skip


# --- oras, and what it says ----------------------------------------------------------------------------------------


def _oras(repository: Repository, *argv: str) -> process.Result | None:
    """Run oras on one reference; None when the registry says that there is no such thing."""
    whole = ["oras", *argv, *_options(repository)]
    try:
        result = process.run(whole, timeout=PATIENCE)
    except errors.MissingToolError:
        raise
    except errors.VettedError as error:
        raise _silent(repository, f"no answer within {PATIENCE:.0f} seconds") from error
    if result.returncode == 0:
        return result
    _refuse(repository, result.output)
    return None


def _options(repository: Repository, prefix: str = "") -> list[str]:
    found = login()
    return [
        *([f"--{prefix}plain-http"] if repository.plain else []),
        *([f"--{prefix}registry-config={found}"] if found else []),
    ]


def login() -> str | None:
    """The file that skopeo and podman keep logins in, when it is to be used; it has Docker's format, and oras looks for
    Docker's alone."""
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


ABSENT = re.compile(r": not found\s*$|name unknown|NAME_UNKNOWN|MANIFEST_UNKNOWN|manifest unknown", re.MULTILINE)
ANSWERED = re.compile(r"response from registry|status code [0-9]{3}\b|https?://")
# What a program says when it writes here; a registry's answer that quotes the same stands behind its address.
HERE = re.compile(
    r"^(?!.*(?:https?://|response))[^\n]*?\b(?:write|open|mkdir|mkdirat|create|rename|sync|truncate) (/[^:\n]*):"
    r" no space left on device",
    re.MULTILINE,
)
FULL = re.compile(r"Err:28\b|no space left|quota|insufficient storage|status code 507", re.IGNORECASE)
REFUSED = re.compile(
    r"unauthorized|authentication|denied|credential|status code 40[13]\b|forbidden", re.IGNORECASE
)  # fmt: skip
READ_ONLY = re.compile(r"status code 405\b|method not allowed|unsupported|read.?only", re.IGNORECASE)
PLAIN = re.compile(r"server gave HTTP response to HTTPS client")
UNTRUSTED = re.compile(r"x509|certificate signed|tls: ", re.IGNORECASE)
SILENT = re.compile(
    r"connection refused|no such host|i/o timeout|deadline exceeded|unreachable|connection reset|broken pipe|\bEOF\b"
    r"|server misbehaving|no route to host|dial tcp",
    re.IGNORECASE,
)
BROKEN = re.compile(r"status code 5[0-9]{2}\b")


def disk_full(path: str) -> errors.StorageError:
    """The disk of this machine is full."""
    folder = str(Path(path).parent)
    return errors.StorageError(
        f"{printable(path)}: no space left on this machine's disk",
        cause="the temporary folder is small, or the disk is full",
        next_step=f"df -h {printable(folder)}; free some space, or set TMPDIR or VETTED_STATE to a larger disk",
    )


def explain(repository: Repository, output: str) -> errors.VettedError:
    """The error that a registry's refusal amounts to, in words; or what oras lacks on this machine."""
    host, said = repository.host, clean(output)
    if here := HERE.search(output):
        return disk_full(here[1])
    if not ANSWERED.search(output) and (errors.NO_SPACE.search(output) or errors.NO_HOME.search(output)):
        return errors.from_tool(f"oras, before {host} could answer", said)
    if FULL.search(output):
        return errors.NetworkError(
            f"{host}: the registry's disk is full\n{said}",
            cause="images pile up there until somebody collects the garbage",
            next_step="free space on the registry, then run this again: what is up already is not pushed twice",
        )
    if PLAIN.search(output):
        return errors.NetworkError(
            f"{host} does not speak TLS\n{said}",
            cause="a registry without a certificate of its own",
            next_step="give it one; or, on a network that you trust, add --insecure",
        )
    if READ_ONLY.search(output):
        return errors.NetworkError(
            f"{host}: the registry is read-only\n{said}",
            cause="maintenance, or a mirror that takes no images",
            next_step="wait for its maintenance to end, or push to the registry it mirrors; then run this again",
        )
    if REFUSED.search(output):
        return errors.NetworkError(
            f"{host} refuses: not logged in, or not allowed\n{said}",
            cause="no login, an expired one, or an account that may not write to this path",
            next_step=f"docker login {host}  (or skopeo login, with REGISTRY_AUTH_FILE set)",
        )
    if UNTRUSTED.search(output):
        return errors.NetworkError(
            f"{host}: its TLS certificate is not trusted\n{said}",
            cause="a company's own authority that this machine does not know",
            next_step="set SSL_CERT_FILE to the authority's bundle",
        )
    if SILENT.search(output):
        return _silent(repository, said)
    if BROKEN.search(output):
        return errors.NetworkError(
            f"{host}: the registry fails\n{said}",
            cause="an outage there",
            next_step="look into the registry's log, then run this again",
        )
    return rubbish(repository, said)


def _silent(repository: Repository, said: str) -> errors.NetworkError:
    return errors.NetworkError(
        f"{repository.host} does not answer\n{said}",
        cause="the registry is down, or a proxy or firewall stands between",
        next_step=f"{_ask(repository)}; when that answers, run this again",
    )


def rubbish(
    repository: Repository, said: str, kind: type[errors.NetworkError] = errors.NetworkError
) -> errors.NetworkError:  # fmt: skip
    return kind(
        f"{repository.host} answers what no registry answers\n{said}",
        cause="something else listens there, such as a proxy's or a hotel's page, or the registry is broken",
        next_step=_ask(repository),
    )


def _ask(repository: Repository) -> str:
    """The command by which a person asks a registry for anything at all."""
    return f"oras repo tags {'--plain-http ' if repository.plain else ''}{repository}"


def printable(line: str) -> str:
    """A line without what a terminal would take for a command."""
    return texts.line(line)


def clean(said: str) -> str:
    """What a stranger said, fit for a terminal: the last lines of it, printable, and not too long."""
    lines = [line for line in said.strip().splitlines() if line.strip()][-4:]
    return "\n".join(texts.line(line, 400) for line in lines)
