"""Does this configuration train? One trial of `vetted bisect config`, written like a probe.

It runs in the stack's environment, in a child of the suite's zygote. trial.json in its directory has the configuration
as `trl grpo --config` would read it. A tiny model, tiny data and a reward of ours replace those that the user did not
provide.
"""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smoke.kit import adapter, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="the configuration does not train",
    bounds=(Bound("trained", "1 if it trained to the end", equals=1, headline=True),),
    links=(),
    needs=("torch", "transformers", "datasets", "trl"),
    skips=(adapter.SERVER_ONLY,),
)
REWARDS = """\
def mean_character(completions, **_):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [sum(ord(letter) % 128 for letter in text) / 128 / max(1, len(text)) for text in texts]
"""


def run(context: Context) -> Iterator[Reading]:
    """Train with the configuration. A number that is not finite is an error."""
    import yaml

    trial = json.loads(Path("trial.json").read_text())
    config = {**_defaults(context, Path(trial["shared"]), trial["ours"]), **trial["config"]}
    _require_finite_numbers()
    Path("config.yaml").write_text(yaml.safe_dump(_without_launcher(config)))
    sys.argv = ["grpo.py", "--config", "config.yaml"]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module("trl.scripts.grpo", run_name="__main__", alter_sys=False)
    yield Reading("trained", 1)


def _defaults(context: Context, shared: Path, ours: list[str]) -> dict[str, Any]:
    """Replacements for the user's model, data and reward (those named in `ours`), and the defaults of every trial."""
    config: dict[str, Any] = {"output_dir": str(context.directory / "output")}
    if "model" in ours:
        if not (shared / "model").is_dir():
            tiny.save(shared / "model.partial", context.seed).rename(shared / "model")
        config["model_name_or_path"] = str(shared / "model")
    if "data" in ours:
        folder = shared / "data"
        if not folder.is_dir():
            folder.mkdir()
            rows = "".join(json.dumps({"prompt": row["prompt"]}) + "\n" for row in tiny.make_prompts(32))
            for split in ("train", "test"):
                (folder / f"{split}.jsonl").write_text(rows)
        config["dataset_name"] = str(folder)
    if "reward" in ours:
        Path("vetted_rewards.py").write_text(REWARDS)
        config |= adapter.cli_reward(context.directory, "vetted_rewards.mean_character", context.seed)
    known = adapter.known_options()
    base: dict[str, Any] = {
        "max_completion_length": 16,
        "num_generations": 4,
        "per_device_train_batch_size": adapter.batch_of(4, 4),
        "gradient_accumulation_steps": 1,
        "max_steps": 2,
        "logging_steps": 1,
        # Otherwise the log replaces a loss that is not finite by the previous one.
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": context.seed,
        "use_cpu": context.device == "cpu",
    }
    return {**config, **{name: value for name, value in base.items() if name in known}}


def _without_launcher(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the launcher's settings. Raises ValueError for unknown settings."""
    from accelerate.commands.launch import launch_command_parser
    from trl.scripts.grpo import make_parser

    trainers = {action.dest for action in make_parser()._actions}
    launchers = {action.dest for action in launch_command_parser()._actions} | {"accelerate_config"}
    unknown = sorted(config.keys() - trainers - launchers - {"env"})
    if unknown:
        raise ValueError(f"unknown setting: {', '.join(unknown)}")
    return {name: value for name, value in config.items() if name in trainers or name == "env"}


def _require_finite_numbers() -> None:
    """Make training fail if a loss, a gradient norm or a weight is not finite."""
    import torch
    import transformers

    train = transformers.Trainer.train

    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        result = train(self, *arguments, **options)
        for entry in self.state.log_history:
            for name in ("loss", "grad_norm"):
                if name in entry and not math.isfinite(entry[name]):
                    raise FloatingPointError(f"{name} is {entry[name]} at step {entry.get('step')}")
        for name, parameter in self.model.named_parameters():
            if parameter.is_floating_point() and not torch.isfinite(parameter).all():
                raise FloatingPointError(f"{name} is not finite after training")
        return result

    transformers.Trainer.train = checked
