"""Why a registry or oras refused: the output of oras and cosign, matched against the causes that are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from builder.base import errors, text
from builder.base.text import word
from builder.publish.reference import Repository

ABSENT = re.compile(r": not found\s*$|name unknown|NAME_UNKNOWN|MANIFEST_UNKNOWN|manifest unknown", re.MULTILINE)
ANSWERED = re.compile(r"response from registry|status code [0-9]{3}\b|https?://")
# What a program prints when it fails to write here; a registry's answer that quotes the same follows its address.
HERE = re.compile(
    r"^(?!.*(?:https?://|response))[^\n]*?\b(?:write|open|mkdir|mkdirat|create|rename|sync|truncate) (/[^:\n]*):"
    r" no space left on device",
    re.MULTILINE,
)


# What a program in Go prints when it dies by a bug of its own, before the list of what it was doing.
CRASH = re.compile(r"^(?:panic|fatal error): [^\n]*", re.MULTILINE)


class Refusal(NamedTuple):
    """A refusal that `pattern` matches. {host} is the registry's; {ask}: the command that asks it for anything."""

    pattern: re.Pattern[str]
    what: str
    cause: str
    next_step: str


SILENT = Refusal(
    re.compile(
        r"connection refused|no such host|i/o timeout|deadline exceeded|unreachable|connection reset|broken pipe"
        r"|\bEOF\b|server misbehaving|no route to host|dial tcp",
        re.IGNORECASE,
    ),
    "{host} does not answer",
    "the registry is down, or a proxy or firewall stands between",
    "{ask}; when that answers, run this again",
)
CRASHED = Refusal(
    CRASH,
    "oras or cosign crashed at {host}",
    "a bug in the program, which shows when several transfers are refused at once",
    "{ask}; run this again, and if it happens again, look into the registry's log for what it refuses",
)
REFUSALS = (  # the first that matches
    Refusal(
        re.compile(r"Err:28\b|no space left|quota|insufficient storage|status code 507", re.IGNORECASE),
        "{host}: the registry's disk is full",
        "images pile up there until somebody collects the garbage",
        "free space on the registry, then run this again: what is up already is not pushed twice",
    ),
    Refusal(
        re.compile(r"server gave HTTP response to HTTPS client"),
        "{host} does not speak TLS",
        "a registry without a certificate of its own",
        "give it one; or, on a network that you trust, add --insecure",
    ),
    Refusal(
        re.compile(r"status code 405\b|method not allowed|unsupported|read.?only", re.IGNORECASE),
        "{host}: the registry is read-only",
        "maintenance, or a mirror that takes no images",
        "wait for its maintenance to end, or push to the registry it mirrors; then run this again",
    ),
    Refusal(
        re.compile(r"unauthorized|authentication|denied|credential|status code 40[13]\b|forbidden", re.IGNORECASE),
        "{host} refuses: not logged in, or not allowed",
        "no login, an expired one, or an account that may not write to this path",
        "docker login {host}  (or skopeo login, with REGISTRY_AUTH_FILE set)",
    ),
    Refusal(
        re.compile(r"x509|certificate signed|tls: ", re.IGNORECASE),
        "{host}: its TLS certificate is not trusted",
        "a company's own authority that this machine does not know",
        "set SSL_CERT_FILE to the authority's bundle",
    ),
    SILENT,
    Refusal(
        re.compile(r"status code 5[0-9]{2}\b"),
        "{host}: the registry fails",
        "an outage there",
        "look into the registry's log, then run this again",
    ),
)


class UnusableError(errors.NetworkError):
    """A registry has something that its own manifest contradicts: anyone who may push can cause that."""


def explain(repository: Repository, output: str) -> errors.VettedError:
    """The error behind the output of oras or cosign: the registry's refusal, or what the tool lacks on this machine."""
    tail = clean(output)
    if here := HERE.search(output):
        return disk_full(here[1])
    if not ANSWERED.search(output) and (errors.NO_SPACE.search(output) or errors.NO_HOME.search(output)):
        return errors.from_tool(f"oras, before {repository.host} could answer", tail)
    for refusal in REFUSALS:
        if refusal.pattern.search(output):
            return _error(refusal, repository, tail)
    if crash := CRASH.search(output):
        return _error(CRASHED, repository, clean(crash[0]))
    return no_registry(repository, tail)


def silent(repository: Repository, detail: str) -> errors.NetworkError:
    """The registry does not answer."""
    return _error(SILENT, repository, detail)


def no_registry(
    repository: Repository, detail: str, kind: type[errors.NetworkError] = errors.NetworkError
) -> errors.NetworkError:  # fmt: skip
    """The answer is not one that a registry gives."""
    return kind(
        f"{repository.host}: not a registry's answer\n{detail}",
        cause="something else listens there, such as a proxy's or a hotel's page, or the registry is broken",
        next_step=_ask(repository),
    )


def disk_full(path: str) -> errors.StorageError:
    """The disk of this machine is full."""
    folder = text.line(str(Path(path).parent))
    return errors.StorageError(
        f"{text.line(path)}: no space left on this machine's disk",
        cause="the temporary folder is small, or the disk is full",
        next_step=f"df -h {word(folder)}; free some space, or set TMPDIR or VETTED_STATE to a larger disk",
    )


def clean(output: str) -> str:
    """Foreign output, fit for a terminal: its last lines, printable, and not too long."""
    lines = [line for line in output.strip().splitlines() if line.strip()][-4:]
    return "\n".join(text.line(line, 400) for line in lines)


def _error(refusal: Refusal, repository: Repository, detail: str) -> errors.NetworkError:
    names = {"host": repository.host, "ask": _ask(repository)}
    return errors.NetworkError(
        f"{refusal.what.format(**names)}\n{detail}", cause=refusal.cause, next_step=refusal.next_step.format(**names)
    )


def _ask(repository: Repository) -> str:
    """The command by which a person asks a registry for anything at all."""
    return f"oras repo tags {'--plain-http ' if repository.plain else ''}{word(repository)}"
