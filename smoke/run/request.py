"""The request of the caller: which probes to run, and how."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoke.probe import ProbeFile


class BadRequestError(Exception):
    """The request is malformed."""


@dataclass(frozen=True)
class Request:
    """A valid request. See `parse`."""

    device: str
    probes: Sequence[ProbeFile]
    distributions: Mapping[str, str]
    seed: int
    memory_mib: int | None


def read_line(descriptor: int) -> str:
    """Read to the end of the line, or of the input. Unbuffered: the supervisor watches the input that follows."""
    line = b""
    while not line.endswith(b"\n") and (chunk := os.read(descriptor, 65536)):
        line += chunk
    return line.decode(errors="replace")


def parse(line: str, files: Mapping[str, ProbeFile]) -> Request:
    """Parse a request, one line of JSON. Raises BadRequestError.

    Keys: `device` ("cpu" or "cuda"), `probes` (names, null for all), `distributions` (should be installed: normalised
    name to version), `seed`, and `memory_mib` (a limit for each probe instead of its own, or null).
    """
    if not line.strip():
        raise BadRequestError("standard input ended before the request")
    try:
        data = json.loads(line)
    except ValueError as error:
        raise BadRequestError(f"the request is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadRequestError("the request is not a JSON object")
    defaults: dict[str, Any] = {"device": "cpu", "probes": None, "distributions": {}, "seed": 0, "memory_mib": None}
    if unknown := sorted(data.keys() - defaults.keys()):
        raise BadRequestError(f"the request has unknown keys: {', '.join(unknown)}; known: {', '.join(defaults)}")
    data = {**defaults, **data}
    device, probes, versions, seed, memory = (data[key] for key in defaults)
    _check(device in ("cpu", "cuda"), "device", '"cpu" or "cuda"')
    _check(probes is None or _is_strings(probes), "probes", "a list of names or null")
    _check(isinstance(versions, dict) and _is_strings(list(versions.values())), "distributions", "names to versions")
    _check(type(seed) is int and 0 <= seed < 2**32, "seed", "a whole number from 0 to 2**32 - 1")
    _check(memory is None or (type(memory) is int and memory > 0), "memory_mib", "a number of MiB or null")
    names = list(files) if probes is None else list(dict.fromkeys(probes))
    if missing := [name for name in names if name not in files]:
        raise BadRequestError(f"unknown probe: {', '.join(missing)}; known: {', '.join(files)}")
    return Request(device, [files[name] for name in names], versions, seed, memory)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _check(valid: bool, key: str, requirement: str) -> None:
    if not valid:
        raise BadRequestError(f"the request's {key} must be {requirement}")
