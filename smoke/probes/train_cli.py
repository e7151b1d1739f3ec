"""Does `trl grpo --config` train as the config file says?

Catches failures of the way most users start a run, which no test of the trainer class covers: the command's parser, the
launcher between it and the training script, the data and the reward function named in a file. An option that is lost on
the way trains something else without a message; so does a misspelt one that is accepted.

Runs the command's entry point on a config file: a tiny model in a folder, prompts in a file, a reward function in a
module next to it. Checks what a user gets: the exit status, the options stored with the checkpoint, the log and the
weights. Then the same with a misspelt option, which has to be refused. Where the launcher starts an interpreter, the
script runs in a forked process, which has the packages imported already. Needs one process.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoke.kit import adapter, grpo, launch, tiny
from smoke.probe import Bound, Context, Probe, Reading

STEPS = 2
# None of these values is a default in any release.
OPTIONS = {
    "learning_rate": 3e-3,
    "max_completion_length": 9,
    "temperature": 0.8,
    "beta": 0.07,
    "num_generations": 4,
    "max_steps": STEPS,
    "seed": 77,
    "lr_scheduler_type": "constant",
    "logging_steps": 1,
    "save_steps": STEPS,
}
REWARDS = """\
def lower_case_letters(completions, **_):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [sum("a" <= letter <= "z" for letter in text) / max(1, len(text)) for text in texts]
"""

PROBE = Probe(
    matters="an option lost between the config file and the trainer trains something else than configured",
    bounds=(
        Bound("exit_status", "0 means that it trained", equals=0),
        Bound("options_lost", "options of the file that did not reach the run", "options", equals=0, headline=True),
        Bound("steps_logged", "as many as the file asks for, each with a finite loss", "steps", equals=STEPS),
        Bound("tensors_untrained", "the saved weights must be trained", "tensors", equals=0),
        Bound("misspelt_accepted", "an unknown option must be refused, by name", "runs", equals=0),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3102",
        "https://github.com/huggingface/trl/issues/3455",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
    forks=True,
)


def run(context: Context) -> Iterator[Reading]:
    """Run the command twice, once with a mistake."""
    import torch
    import yaml
    from transformers import AutoModelForCausalLM

    home = context.directory
    model = tiny.save(home / "model", context.seed)
    output = home / "output"
    (home / "rewards.py").write_text(REWARDS)
    prompts = [{"prompt": row["prompt"]} for row in tiny.make_prompts(16)]
    (home / "data").mkdir()
    (home / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    config = {
        **OPTIONS,
        **adapter.cli_reward(home, "rewards.lower_case_letters", context.seed),
        "model_name_or_path": str(model),
        "dataset_name": str(home / "data"),
        "output_dir": str(output),
        "per_device_train_batch_size": adapter.batch_of(grpo.GENERATIONS, grpo.GENERATIONS),
        "gradient_accumulation_steps": 1,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": context.device == "cpu",
    }
    status = _trl(home / "good.yaml", yaml.safe_dump(config), on_gpu=context.device == "cuda")
    yield Reading("exit_status", status, "the log has what the command printed" if status else "")
    if status:
        return

    arguments = torch.load(output / f"checkpoint-{STEPS}" / "training_args.bin", weights_only=False)
    lost = [f"{name} is {getattr(arguments, name, 'absent')}, not {OPTIONS[name]}" for name in _lost(arguments)]
    yield Reading("options_lost", len(lost), "; ".join(lost))
    state = json.loads((output / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    yield Reading("steps_logged", sum(loss == loss for loss in losses), f"losses {losses}")
    before = grpo.snapshot(AutoModelForCausalLM.from_pretrained(model))
    after = grpo.snapshot(AutoModelForCausalLM.from_pretrained(output))
    same = [name for name in before if torch.equal(before[name], after[name])]
    yield Reading("tensors_untrained", len(same), ", ".join(same))

    wrong = {**config, "output_dir": str(home / "wrong"), "lerning_rate": 1e-3}
    with launch.output_in(home / "wrong.log"):
        status = _trl(home / "wrong.yaml", yaml.safe_dump(wrong))
    named = "lerning_rate" in (home / "wrong.log").read_text(errors="replace")
    detail = "" if status and named else "the command failed without naming" if status else "the command accepted"
    yield Reading("misspelt_accepted", not (status and named), f"{detail} lerning_rate" if detail else "")


def _trl(file: Path, text: str, *, on_gpu: bool = False) -> int:
    """`trl grpo --config FILE`, in the file's directory; its exit status. `on_gpu`: it must use the GPU."""
    import accelerate.commands.launch
    from trl import cli

    file.write_text(text)
    command = ["trl", "grpo", "--config", str(file)]
    sys.stdout.write(f"$ {' '.join(command)}\n")
    real = accelerate.commands.launch.subprocess

    with launch.Interpreters(on_gpu=on_gpu) as interpreters:

        def entry() -> Any:
            sys.argv = command
            sys.path.insert(0, str(file.parent))
            accelerate.commands.launch.subprocess = types.SimpleNamespace(
                Popen=interpreters.start, CalledProcessError=real.CalledProcessError
            )
            return cli.main()

        status = launch.forked(entry)
    if status == 0 and interpreters.scripts == 0:
        sys.stdout.write("smoke: the command has started no script\n")
        return 1
    return status


def _lost(arguments: Any) -> list[str]:
    return [
        name
        for name, value in OPTIONS.items()
        if str(getattr(getattr(arguments, name, None), "value", getattr(arguments, name, None))) != str(value)
    ]
