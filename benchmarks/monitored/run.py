"""One tiny run: a model and prompts from a seed, options of GRPOConfig, a fault or none, the monitor or none."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.monitored import faults, standin
from smoke.kit import adapter, tiny
from smoke.probe import NotApplicable

STEPS = 10
OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 4,
    "max_completion_length": 12,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "temperature": 1.0,
    "bf16": False,
    "gradient_checkpointing": False,
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "use_cpu": True,
    "max_steps": STEPS,
}


def share_of_letters(completions: list[Any], **_: Any) -> list[float]:
    """The share of lower-case letters: dense, and hardly ever the same for a whole group."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [sum("a" <= letter <= "z" for letter in text) / max(1, len(text)) for text in texts]


def length(completions: list[Any], **_: Any) -> list[float]:
    """Longer is better."""
    return [float(len(c if isinstance(c, str) else c[-1]["content"])) for c in completions]


def sometimes(completions: list[Any], **_: Any) -> list[float | None]:
    """Scores every completion but those with a digit."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [None if any(map(str.isdigit, text)) else float("e" in text) for text in texts]


def right_or_wrong(completions: list[Any], **_: Any) -> list[float]:
    """1 or 0, and often the same for a whole group."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(any(letter in "aeiou" for letter in text)) for text in texts]


REWARDS = {function.__name__: function for function in (share_of_letters, length, sometimes, right_or_wrong)}


class Signal:
    """Whether a group has had two different rewards in training, by what the reward functions returned."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.seen = False

    def watched(self, reward: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """The same reward function, whose answers are looked at."""

        @functools.wraps(reward)
        def watched(completions: list[Any], **columns: Any) -> list[Any]:
            values = reward(completions, **columns)
            if self.trainer.model.training:
                size = self.trainer.num_generations
                groups = (values[start : start + size] for start in range(0, len(values), size))
                self.seen = self.seen or any(
                    len({value for value in group if value is not None}) > 1 for group in groups
                )
            return values

        return watched


def run(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a job: name, and optionally seed, options, model, rewards, lora, sampler, fault, monitor; one rank of it.

    The process that forks it also knows ranks, fault_rank (the only one with the fault), out (the folder of all ranks),
    and apart (the ranks from this one on have a folder of their own).

    The answer has `refused` where no trainer can be made, and `stopped` where training ends with an error.
    """
    signal = Signal()
    try:
        trainer = make(job, folder, signal)
    except Exception as error:
        return {"name": job["name"], "refused": said(error)}
    if job.get("monitor", True):
        from runtime.monitor import hooks, watch

        # Processor time: how long a step takes depends on what else the machine does.
        vars(hooks)["time"] = SimpleNamespace(perf_counter=time.thread_time)
        watch(trainer, folder=folder / "out")
    first = digest(trainer)
    started = time.process_time()
    try:
        trainer.train()
    except Exception as error:
        return {"name": job["name"], "stopped": said(error), **_seen(folder / "out")}
    seconds = time.process_time() - started
    answer = {"name": job["name"], "seconds": seconds, "weights": digest(trainer), "rng": _rng()}
    answer["signal"], answer["moved"] = signal.seen, answer["weights"] != first
    answer["losses"] = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    watching = [callback for callback in trainer.callback_handler.callbacks if type(callback).__name__ == "Monitor"]
    answer["share"] = sum(callback.guard.seconds for callback in watching) / seconds
    return {**answer, **_seen(folder / "out")}


def digest(trainer: Any) -> str:
    """The digest of all weights."""
    import torch

    state, content = trainer.accelerator.unwrap_model(trainer.model).state_dict(), hashlib.sha256()
    for name in sorted(state):
        content.update(name.encode() + state[name].detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def said(error: Exception) -> str:
    """An error in one line."""
    message = " ".join(str(error).split())[:200]
    return message if isinstance(error, NotImplementedError | NotApplicable) else f"{type(error).__name__}: {message}"


def _rng() -> str:
    import torch

    return hashlib.sha256(torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode()).hexdigest()


def _seen(folder: Path) -> dict[str, Any]:
    """What the monitor left."""
    import json

    from runtime.monitor import judge, record

    if not (folder / record.SUMMARY).is_file():
        return {}
    summary = json.loads((folder / record.SUMMARY).read_text())
    rows = record.read(folder)
    findings = [
        {"check": result.check.name, "outcome": result.outcome, "first": result.first, "worst": str(result.worst)}
        for result in judge.results(rows, summary["absent"])
        if result.outcome in (judge.ALARM, judge.ADVICE)
    ]
    return {
        "rows": rows, "findings": findings, "absent": summary["absent"], "failure": summary["failure"],
    }  # fmt: skip


def options_of_release(wished: dict[str, Any]) -> dict[str, Any]:
    """The options that this release of TRL knows; one whose value it does not know is left out."""
    from trl import GRPOConfig

    known = {field.name: field for field in dataclasses.fields(GRPOConfig)}
    options = {name: value for name, value in wished.items() if name in known}
    if options.get("loss_type") not in adapter.losses():
        options.pop("loss_type", None)
    if "scale_rewards" in options and isinstance(known["scale_rewards"].default, bool):  # until 0.22
        options["scale_rewards"] = options["scale_rewards"] != "none"
    return options


def make(job: dict[str, Any], folder: Path, signal: Signal) -> Any:
    """The trainer of a job, whose rewards `signal` sees."""
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    seed = job.get("seed", 1)
    model = folder / "model"
    shape = job.get("model", {})
    tiny.save(model, seed, shape.get("architecture", "qwen2"), tied=shape.get("tied", False))
    if "options" in shape:
        tiny.make_model(seed, **shape["options"]).save_pretrained(model)
    sampler = job.get("sampler")
    wished = {**OPTIONS, "seed": seed, **job.get("options", {}), **(adapter.colocated("cpu") if sampler else {})}
    arguments = GRPOConfig(output_dir=str(folder / "out"), **options_of_release(wished))
    rewards = [signal.watched(REWARDS[name]) for name in job.get("rewards", ["share_of_letters"])]
    extra: dict[str, Any] = {}
    if job.get("lora"):
        from peft import LoraConfig

        extra["peft_config"] = LoraConfig(**{"r": 8, "lora_alpha": 16, "target_modules": "all-linear", **job["lora"]})
    if "eval_strategy" in job.get("options", {}):
        extra["eval_dataset"] = tiny.make_prompts(8)
    if sampler == "standin":
        standin.install(model, job.get("engine_type", "float32"))
    fault = faults.FAULTS[job["fault"]] if job.get("fault") else None
    if fault:
        if unknown := job.get("options", {}).keys() - adapter.known_options():
            raise NotImplementedError(f"this release has no {', '.join(sorted(unknown))}")
        fault.before()
    trainer = GRPOTrainer(
        model=str(model), reward_funcs=rewards, args=arguments, train_dataset=tiny.make_prompts(32), **extra
    )
    signal.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    if fault:
        fault.after(trainer)
    return trainer
