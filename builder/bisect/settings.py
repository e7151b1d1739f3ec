"""Which settings of a training configuration make it fail: the smallest set that still does, each one tried by running.

And from below: the largest set that works, as practitioners find it by adding one setting after the other.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.base import errors, process, reading
from builder.bisect import ddmin
from builder.bisect.bisection import Journal, Said, Verdict
from builder.certify import suite

TRIAL = Path("smoke/trials/trial.py")  # below the copy of the suite
# What stands in a configuration for a thing of ours, unless the person keeps theirs.
OURS = {
    "model": ("model_name_or_path", "model_revision", "trust_remote_code"),
    "data": ("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_streaming",
             "datasets", "dataset_mixture", "test_split_size"),
    "reward": ("reward_funcs", "reward_model_name_or_path"),
}  # fmt: skip
# What a trial decides by itself: where it writes, and that it tells nobody.
NEVER = ("output_dir", "push_to_hub", "hub_model_id", "hub_token", "resume_from_checkpoint", "overwrite_output_dir",
         "report_to", "disable_tqdm", "run_name", "logging_dir")  # fmt: skip
# More of these takes longer, and shows nothing more of a tiny model.
MOST = {"max_completion_length": 32, "max_steps": 2}
MOST_VALUES = 10_000  # of a configuration
LENGTHS = ("num_train_epochs",)  # says nothing beside max_steps, which a trial has
PACKAGES = ("torch", "transformers", "datasets", "peft", "trl")


@dataclass(frozen=True)
class Config:
    """A configuration taken apart: what is searched, and what a trial replaces."""

    path: Path
    settings: Mapping[str, Any]
    ours: tuple[str, ...]
    replaced: tuple[str, ...]
    reduced: Mapping[str, tuple[Any, Any]]

    @property
    def packages(self) -> list[str]:
        """What every trial may need, imported once."""
        more = {
            "deepspeed": "deepspeed" in self.settings,
            "bitsandbytes": any(self.settings.get(key) for key in ("load_in_4bit", "load_in_8bit")),
            "vllm": bool(self.settings.get("use_vllm")),
        }
        return [*PACKAGES, *(name for name, needed in more.items() if needed)]


def read(path: Path, keep: Sequence[str]) -> Config:
    """Read a configuration as `trl grpo --config` does. `keep`: model, data, reward, or a setting, as they are."""
    try:
        data = yaml.safe_load(reading.text(path, str(path), most=reading.WRITTEN))
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{path} does not exist", next_step="--config FILE, as for trl grpo") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{path}: not YAML: {' '.join(str(error).split())}", next_step=f"correct {path}"
        ) from error
    if not isinstance(data, dict) or not data or not all(isinstance(name, str) for name in data):
        raise errors.BadInputError(f"{path} holds no settings", next_step="write them as name: value")
    if _more_than(MOST_VALUES, data):
        raise errors.BadInputError(f"{path} holds more than {MOST_VALUES} values", next_step=f"correct {path}")
    try:
        json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.BadInputError(f"{path}: {error}", next_step=f"correct {path}") from error
    ours = tuple(name for name in OURS if name not in keep)
    gone = {*NEVER, *LENGTHS, *(setting for name in ours for setting in OURS[name])} - set(keep)
    settings, reduced = {}, {}
    for name, value in data.items():
        most = MOST.get(name)
        if name in gone:
            continue
        if most is not None and name not in keep and isinstance(value, int) and not 0 < value <= most:
            reduced[name] = (value, most)
            value = most
        settings[name] = _absolute(value, path.parent)
    if not settings:
        raise errors.BadInputError(f"{path} holds nothing to search", next_step="--keep model, data or reward")
    return Config(path, settings, ours, tuple(name for name in data if name in gone), reduced)


def _more_than(most: int, data: object) -> bool:
    """Are there more values than that? An alias of YAML counts as often as it stands there: ten of ten of ten…"""
    waiting = [data]
    while waiting and most >= 0:
        value, most = waiting.pop(), most - 1
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most < 0


def _absolute(value: Any, folder: Path) -> Any:
    """A file beside the configuration, by a name that holds anywhere."""
    if isinstance(value, str) and value and "\n" not in value and len(value) < 200 and (folder / value).is_file():
        return str((folder / value).resolve())
    return value


@dataclass(frozen=True)
class Found:
    """The answer: the smallest failing set of settings, and the largest working one."""

    failing: tuple[str, ...]
    said: Said
    without: tuple[str, ...]  # what to take out, for all the rest to work


class Server:
    """Trials in an environment: one process that imports once, and forks a child for each."""

    def __init__(
        self, environment: Path, device: str, config: Config, root: Path, scratch: Path, limit_s: float
    ) -> None:
        self.config, self.scratch, self._root = config, scratch, root
        self._first = {
            "device": device, "packages": config.packages, "timeout_s": limit_s, "memory_mib": suite.memory_mib(),
        }  # fmt: skip
        self._environment, self._runner = environment, suite.on_host(environment, root, scratch / "run")
        self._stack = ExitStack()
        self._child: subprocess.Popen[str] | None = None
        self._log = scratch / "trials.log"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, settings: Mapping[str, Any]) -> Said:
        """Try these settings."""
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps({"config": dict(settings), "ours": list(self.config.ours)}) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # its log says why
        for line in child.stdout:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "end":
                return of_trial(event)
        raise errors.from_tool("running trials", self._log.read_text(errors="replace"))

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            log = self._stack.enter_context(self._log.open("wb"))
            command = [str(self._environment / "bin" / "python"), "-m", "smoke.trials", str(self._root / TRIAL)]
            self._child = self._stack.enter_context(
                process.running(
                    command,
                    env={**self._runner.environment, "PYTHONPATH": str(self._root)},
                    stdin=subprocess.PIPE,
                    stderr=log,
                    cwd=self.scratch,
                )
            )
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps(self._first) + "\n")
        return self._child


def of_trial(event: Mapping[str, Any]) -> Said:
    """A trial's end as an answer: ok, an error by its kind and words, a crash, a hang, a number that is not finite."""
    outcome, reason, log = str(event["outcome"]), str(event["reason"] or ""), str(event["log_tail"] or "")
    seconds = float(event["seconds"])
    if outcome == "passed":
        return Said("green", seconds=seconds)
    if outcome == "not-run":
        return Said("unclear", reason=reason, seconds=seconds)
    if outcome == "failed":
        kind, _, words = reason.partition(":")
        if kind == "FloatingPointError":
            return Said("red", "nan", words.strip(), seconds, log)
        if not words:  # it exited by itself, and its last words are in the log
            reason = next((line for line in reversed(log.splitlines()) if line.strip()), reason)
        # The same error says other numbers with other settings.
        return Said("red", re.sub(r"[\d.]+", "#", reason.splitlines()[0])[:200], reason, seconds, log)
    kinds = {"timeout": "hang", "crashed": f"crash: {reason}"}
    return Said("red", kinds.get(outcome, outcome), reason, seconds, log)


def key(config: Config, environment: str, identity: str) -> str:
    """The name of this very bisection."""
    asked = json.dumps([dict(config.settings), config.ours, environment, identity], sort_keys=True)
    return f"config-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"


def search(
    config: Config, journal: Journal, ask: Callable[[Mapping[str, Any]], Said], report: Callable[[str], None]
) -> Found:
    """Find the smallest set of settings that fails, and the largest that works. Raises VettedError."""
    names = list(config.settings)

    def verdict(part: Sequence[str]) -> Verdict:
        settings = {name: config.settings[name] for name in names if name in part}
        report(f"trial {journal.runs + 1}: {len(settings)} of {len(names)} settings")
        words = [f"{name}: {json.dumps(value)}" for name, value in settings.items()]
        return journal.ask(_row(settings), words, lambda: ask(settings))

    while True:
        journal.fault = None
        _ends(config, verdict, journal)
        failing = ddmin.smallest(names, lambda part: verdict(part) == "red")
        # From below: what has to stay out, for everything else to work, is as small as can be.
        without = ddmin.smallest(
            [*(name for name in names if name not in failing), *failing][::-1],
            lambda part: verdict([name for name in names if name not in part]) == "green",
            [(name,) for name in failing],
        )
        chosen = {name: config.settings[name] for name in failing}
        if journal.lead > 1 or journal.again(_row(chosen), lambda chosen=chosen: ask(chosen)):  # type: ignore[misc]
            said = next(said for said in journal.rows[_row(chosen)].said if journal.kind(said) == "red")
            return Found(failing, said, without)
        report("an answer changed: asking again until each is decided")


def _row(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _ends(config: Config, verdict: Callable[[Sequence[str]], Verdict], journal: Journal) -> None:
    if verdict(()) != "green":
        said = journal.rows[_row({})].said[-1]
        raise errors.VettedError(
            f"not even a tiny configuration without these settings works: {said.reason}",
            cause="the environment is broken, or a model, data set or reward that was kept",
            next_step="vetted certify, or the same command without --keep",
        )
    if verdict(list(config.settings)) != "red":
        raise errors.VettedError(
            f"{config.path.name} works with {' and '.join(config.ours) or 'all that it names'} of ours",
            cause="the fault lies in the model, the data or the reward that were replaced, or in their size",
            next_step="--keep model, data, reward, or a setting that was reduced",
        )
    said = next(said for said in journal.rows[_row(dict(config.settings))].said if said.outcome == "red")
    journal.fault = said.fault


def dump(config: Config, names: Sequence[str]) -> str:
    """These settings as a configuration; what a trial replaced stays out."""
    settings = {name: config.settings[name] for name in config.settings if name in names}
    return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
