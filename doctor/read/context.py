"""What is known of a run besides its packages: launcher, ZeRO stage, quantisation, vLLM's mode, options, hardware.

A key that is absent is not known. Configurations are YAML, JSON, TOML, an accelerate or DeepSpeed configuration, a
Python script or a command line: what is looked for are the options that TRL and Transformers know, wherever they stand.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from doctor.base import versions

LARGEST = 1024 * 1024  # bytes of a configuration
VALUE = r"""(?P<value>"[^"\n]{0,200}"|'[^'\n]{0,200}'|[^\s,#(){}\[\]\n-][^\s,#(){}\[\]\n]{0,200}|-\d[^\s,#)]{0,40})"""
PAIRS = (
    re.compile(rf"(?:^|\s)--(?P<key>[A-Za-z_][A-Za-z0-9_.-]{{1,60}})(?:=|\s+){VALUE}", re.MULTILINE),
    re.compile(rf"""(?:^|[\s,({{])["']?(?P<key>[A-Za-z_][A-Za-z0-9_.]{{1,60}})["']?\s*[:=]\s*{VALUE}""", re.MULTILINE),
)
COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(.*)")


@dataclass
class Context:
    known: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)

    def holds(self, wanted: dict[str, Any]) -> dict[str, bool | None]:
        """Each condition of an advisory's context, and whether it holds; None where that is not known."""
        found: dict[str, bool | None] = {}
        for key, value in wanted.items():
            if key == "note":
                found[str(value)] = None
            elif key == "flags":
                found.update({f"{flag} {_shown(want)}": self._flag(flag, want) for flag, want in value.items()})
            else:
                found[_said(key, value)] = self._key(key, value)
        return found

    def _flag(self, flag: str, wanted: object) -> bool | None:
        if flag not in self.flags:
            return None
        return compare(self.flags[flag], wanted)

    def _key(self, key: str, wanted: Any) -> bool | None:
        have = self.known.get(key)
        if have is None:
            return None
        if key == "gpu_model":
            return any(re.search(rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])", str(have)) for one in wanted)
        if isinstance(wanted, list):
            return have in wanted
        if isinstance(wanted, bool):
            return bool(have) is wanted
        return versions.within(str(wanted), str(have))


def compare(have: object, wanted: object) -> bool | None:
    """Is an option's value what is asked for? None when they cannot be compared."""
    if isinstance(wanted, bool):
        return truth(have) is wanted if truth(have) is not None else None
    match = COMPARISON.fullmatch(wanted) if isinstance(wanted, str) else None
    if match:
        left, right = number(have), number(match[2])
        if left is None or right is None:
            return None
        return {"==": left == right, "!=": left != right, "<=": left <= right, ">=": left >= right,
                "<": left < right, ">": left > right}[match[1]]  # fmt: skip
    if isinstance(wanted, (int, float)):
        value = number(have)
        return None if value is None else value == wanted
    return str(have).strip().lower().rpartition(".")[2] == str(wanted).lower()


def truth(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    said = str(value).strip().lower()
    if said in ("true", "yes", "on", "1"):
        return True
    return False if said in ("false", "no", "off", "0", "none", "null") else None


def number(value: object) -> float | None:
    """A number out of what somebody wrote; of '>1' what is a little more."""
    if isinstance(value, bool):
        return float(value)
    match = re.fullmatch(r"\s*(>=?|<=?)?\s*([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*", str(value)[:60])
    if not match:
        return None
    step = {">": 1.0, "<": -1.0}.get(match[1] or "", 0.0)
    found = float(match[2]) + step
    return found if math.isfinite(found) else None


def read(text: str) -> Context:
    """The context that a configuration, a script or a command line tells."""
    options: dict[str, Any] = {}
    parsed = _json(text)
    if parsed is not None:
        _flatten(parsed, options)
    else:
        for match in (match for pattern in PAIRS for match in pattern.finditer(text[:LARGEST])):
            key = match["key"].rpartition(".")[2].replace("-", "_")
            options.setdefault(key, match["value"].strip("\"'"))
    found = of_options(options)
    if parsed is None:
        of_launch(text[:LARGEST], found)
    return found


def of_options(options: dict[str, Any]) -> Context:
    """The context that options tell, by the names that TRL, Transformers, accelerate and DeepSpeed give them."""
    found = Context(flags={key: value for key, value in options.items() if not isinstance(value, (dict, list))})
    known = found.known
    for key in ("processes", "num_processes", "nproc_per_node"):
        if number(options.get(key)) is not None:
            known["processes"] = str(int(number(options[key]) or 0))
    stage = options.get("zero_stage", (options.get("zero_optimization") or {}).get("stage")
                        if isinstance(options.get("zero_optimization"), dict) else None)  # fmt: skip
    if number(stage) is not None:
        known["zero_stage"] = int(number(stage) or 0)
    for option, meaning in (("load_in_4bit", "4bit"), ("load_in_8bit", "8bit")):
        if option in options and truth(options[option]):
            known["quantisation"] = meaning
    if "use_vllm" in options and truth(options["use_vllm"]) is False:
        known["vllm_mode"] = "off"
    elif str(options.get("vllm_mode", "")).lower() in ("colocate", "server"):
        known["vllm_mode"] = str(options["vllm_mode"]).lower()
    elif str(options.get("vllm_device", "")).startswith(("cuda", "auto")):
        known["vllm_mode"] = "in-process"
    return found


def of_launch(text: str, found: Context) -> None:
    """What the words of a launch say: `accelerate launch --config_file zero3.yaml`, 'deepspeed zero3'."""
    low = text.lower()
    for launcher in ("torchrun", "accelerate", "deepspeed"):
        if re.search(rf"\b{launcher}\b", low):
            found.known.setdefault("launcher", launcher)
    if "launcher" not in found.known and re.match(r"\s*python[0-9.]*\s+\S+\.py\b", low):
        found.known["launcher"] = "python"
    stage = re.search(r"zero[-_ ]?(?:stage[-_ ]?)?([0-3])\b|\bds_?z([0-3])", low)
    if stage:
        found.known.setdefault("zero_stage", int(stage[1] or stage[2]))
    if re.search(r"vllm[-_ ]serve|server mode", low):
        found.known.setdefault("vllm_mode", "server")


def complete(found: Context, trl: str | None, python: str | None) -> Context:
    """What follows from the rest: which mode use_vllm means depends on TRL."""
    if python:
        found.known.setdefault("python", python)
    if truth(found.flags.get("use_vllm", False)) and "vllm_mode" not in found.known and trl:
        if versions.within("<0.16.0", trl):
            found.known["vllm_mode"] = "in-process"
        elif versions.within("<0.18.0", trl):
            found.known["vllm_mode"] = "server"
    return found


def _json(text: str) -> object | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed


def _flatten(value: object, options: dict[str, Any], depth: int = 0) -> None:
    if depth > 20:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            options.setdefault(str(key), inner)
            _flatten(inner, options, depth + 1)
    elif isinstance(value, list):
        for inner in value[:100]:
            _flatten(inner, options, depth + 1)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _said(key: str, value: object) -> str:
    shown = " or ".join(map(str, value)) if isinstance(value, list) else _shown(value)
    return f"{key.replace('_', ' ')} {shown}"
