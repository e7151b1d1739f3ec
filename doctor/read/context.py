"""The context of a run besides its packages: launcher, ZeRO stage, quantisation, vLLM's mode, options, hardware.

A configuration is YAML, JSON, TOML, of accelerate or DeepSpeed, a Python script or a command line. The options that TRL
and Transformers know are searched for wherever they stand.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from doctor.base import versions
from doctor.read.environment import Problem

LARGEST = 1024 * 1024  # bytes of a configuration
VALUE = r"""(?P<value>"[^"\n]{0,200}"|'[^'\n]{0,200}'|[^\s,#(){}\[\]\n-][^\s,#(){}\[\]\n]{0,200}|-\d[^\s,#)]{0,40})"""
PAIRS = (
    re.compile(rf"(?:^|\s)--(?P<key>[A-Za-z_][A-Za-z0-9_.-]{{1,60}})(?:=|\s+){VALUE}", re.MULTILINE),
    re.compile(rf"""(?:^|[\s,({{])["']?(?P<key>[A-Za-z_][A-Za-z0-9_.]{{1,60}})["']?\s*[:=]\s*{VALUE}""", re.MULTILINE),
)
# A class that a script names, or a command of TRL; `Trainer` alone is Transformers' own.
TRAINER = re.compile(r"(?<![\w])([A-Z]\w{0,40}Trainer)(?!\w)|\btrl\s+(sft|dpo|kto|orpo|cpo|grpo|rloo|gkd)\b")
# Options of TRL's own scripts, ms-swift, axolotl and LLaMA-Factory that name a method, and so one of TRL's trainers.
METHOD_OPTIONS = ("trainer", "trainer_type", "rlhf_type", "rl", "stage")
METHOD = re.compile(r"(sft|dpo|kto|orpo|cpo|bco|grpo|rloo|gkd|ppo|reward)(?:_?trainer)?", re.IGNORECASE)
COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(.*)")


@dataclass
class RunContext:
    """A key that is absent is not known.

    `facts`: launcher, processes, zero_stage, quantisation, vllm_mode, trainer (the names in a script), gpu_model, gpus,
    driver, cuda, compiler, python.
    `flags`: options of the run by their own names.
    `damaged`: configurations that no program parses. `blank`: those that state nothing that the doctor knows.
    `silent`: the Python that was named and does not answer. `unreadable`: the environment that the error names, where
    it is on this machine and cannot be read.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    damaged: list[Problem] = field(default_factory=list)
    blank: list[Problem] = field(default_factory=list)
    silent: Problem | None = None
    unreadable: Problem | None = None

    def conditions(self, required: dict[str, Any]) -> dict[str, bool | None]:
        """Each condition of an advisory's context in words, and whether it is met; None where that is not known."""
        answers: dict[str, bool | None] = {}
        for key, value in required.items():
            if key == "note":
                answers[str(value)] = None
            elif key == "flags":
                answers.update(
                    {f"{flag} {_written(choice)}": self._flag(flag, choice) for flag, choice in value.items()}
                )
            else:
                alternatives = " or ".join(map(str, value)) if isinstance(value, list) else _written(value)
                answers[f"{key.replace('_', ' ')} {alternatives}"] = self._fact(key, value)
        return answers

    def _flag(self, flag: str, required: object) -> bool | None:
        return compare(self.flags[flag], required) if flag in self.flags else None

    def _fact(self, key: str, required: Any) -> bool | None:
        value = self.facts.get(key)
        if value is None:
            return None
        if key == "gpu_model":
            patterns = (rf"(?<![A-Za-z0-9]){re.escape(model)}(?![A-Za-z0-9])" for model in required)
            return any(re.search(pattern, str(value)) for pattern in patterns)
        if key == "trainer":
            return not set(required).isdisjoint(value)
        if isinstance(required, list):
            return value in required
        if isinstance(required, bool):
            return bool(value) is required
        return versions.within(str(required), str(value))


def compare(value: object, required: object) -> bool | None:
    """Does an option have the required value, such as True, 0.7 or ">=2"? None when they cannot be compared."""
    if isinstance(required, bool):
        return truth(value) is required if truth(value) is not None else None
    match = COMPARISON.fullmatch(required) if isinstance(required, str) else None
    if match:
        left, right = number(value), number(match[2])
        if left is None or right is None:
            return None
        return {
            "==": left == right, "!=": left != right, "<=": left <= right,
            ">=": left >= right, "<": left < right, ">": left > right,
        }[match[1]]  # fmt: skip
    if isinstance(required, (int, float)):
        left = number(value)
        return None if left is None else left == required
    return str(value).strip().lower().rpartition(".")[2] == str(required).lower()


def truth(value: object) -> bool | None:
    """A boolean in any spelling; None for anything else."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    return False if text in ("false", "no", "off", "0", "none", "null") else None


def number(value: object) -> float | None:
    """The number in a value; for ">1" one that is above it, for "<1" one below. None where there is none."""
    if isinstance(value, bool):
        return float(value)
    match = re.fullmatch(r"\s*(>=?|<=?)?\s*([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*", str(value)[:60])
    if not match:
        return None
    result = float(match[2]) + {">": 1.0, "<": -1.0}.get(match[1] or "", 0.0)
    return result if math.isfinite(result) else None


def read(text: str) -> RunContext:
    """The context that a configuration, a script or a command line states."""
    options: dict[str, Any] = {}
    parsed = _parse_json(text)
    if parsed is not None:
        _flatten(parsed, options)
    else:
        for match in (match for pattern in PAIRS for match in pattern.finditer(text[:LARGEST])):
            key = match["key"].rpartition(".")[2].replace("-", "_")
            options.setdefault(key, match["value"].strip("\"'"))
    context = of_options(options)
    if parsed is None:
        add_launch(context, text[:LARGEST])
        trainers = [match[1] or f"{match[2].upper()}Trainer" for match in TRAINER.finditer(text[:LARGEST])]
        if trainers:
            context.facts["trainer"] = sorted(set(trainers))
    return context


def of_options(options: dict[str, Any]) -> RunContext:
    """The context that options state, by the names of TRL, Transformers, accelerate and DeepSpeed."""
    context = RunContext(flags={key: value for key, value in options.items() if not isinstance(value, (dict, list))})
    facts = context.facts
    for key in ("processes", "num_processes", "nproc_per_node"):
        if number(options.get(key)) is not None:
            facts["processes"] = str(int(number(options[key]) or 0))
    optimization = options.get("zero_optimization")
    nested = optimization.get("stage") if isinstance(optimization, dict) else None
    stage = number(options.get("zero_stage", nested))
    if stage is not None:
        facts["zero_stage"] = int(stage)
    for option, quantisation in (("load_in_4bit", "4bit"), ("load_in_8bit", "8bit")):
        if option in options and truth(options[option]):
            facts["quantisation"] = quantisation
    methods = [METHOD.fullmatch(str(options[option]).strip()) for option in METHOD_OPTIONS if option in options]
    if trainers := sorted({_trainer(method[1]) for method in methods if method}):
        facts["trainer"] = trainers
    if "use_vllm" in options and truth(options["use_vllm"]) is False:
        facts["vllm_mode"] = "off"
    elif str(options.get("vllm_mode", "")).lower() in ("colocate", "server"):
        facts["vllm_mode"] = str(options["vllm_mode"]).lower()
    elif str(options.get("vllm_device", "")).startswith(("cuda", "auto")):
        facts["vllm_mode"] = "in-process"
    return context


def _trainer(method: str) -> str:
    return "RewardTrainer" if method.lower() == "reward" else f"{method.upper()}Trainer"


def add_launch(context: RunContext, command: str) -> None:
    """Add what a launch command states: `accelerate launch --config_file zero3.yaml`, "deepspeed zero3"."""
    low = command.lower()
    for launcher in ("torchrun", "accelerate", "deepspeed"):
        if re.search(rf"\b{launcher}\b", low):
            context.facts.setdefault("launcher", launcher)
    if "launcher" not in context.facts and re.match(r"\s*python[0-9.]*\s+\S+\.py\b", low):
        context.facts["launcher"] = "python"
    stage = re.search(r"zero[-_ ]?(?:stage[-_ ]?)?([0-3])\b|\bds_?z([0-3])", low)
    if stage:
        context.facts.setdefault("zero_stage", int(stage[1] or stage[2]))
    if re.search(r"vllm[-_ ]serve|server mode", low):
        context.facts.setdefault("vllm_mode", "server")


def complete(context: RunContext, trl: str | None, python: str | None) -> None:
    """Add what follows from the packages: which mode use_vllm means depends on the release of TRL."""
    if python:
        context.facts.setdefault("python", python)
    if truth(context.flags.get("use_vllm", False)) and "vllm_mode" not in context.facts and trl:
        if versions.within("<0.16.0", trl):
            context.facts["vllm_mode"] = "in-process"
        elif versions.within("<0.18.0", trl):
            context.facts["vllm_mode"] = "server"


def _parse_json(text: str) -> object | None:
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


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
