"""Are broken environments good after what the doctor printed was typed? `python -m benchmarks.broken [NAME…]`

Makes each environment, asks it its question (a probe of the suite, or a program of a few lines), which must fail, gives
the doctor the output, runs the first finding's commands to the letter, and asks again. Where that finding has none of
its own, or where the doctor measured, it is the one command that mends all together. Nothing is kept: each environment
is removed before the next.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import environments
from builder.base import machine, project
from builder.base.project import Project
from builder.certify import control, hostenv
from builder.pages import evidence

ZERO3 = "zero_stage: 3\nuse_vllm: false\ngradient_checkpointing: true\n"
# Each control that distributions make bad, what its run was asked for, and the advisory that it is an example of.
CONTROLS = {
    "trl0.14-transformers4.52": ("use_vllm: false\n", "VETTED-0001"),
    "trl0.15-transformers4.48": ("use_vllm: false\n", "VETTED-0003"),
    "trl0.15-transformers4.52": ("use_vllm: false\n", "VETTED-0017"),
    "trl0.15-uneven-ranks": (ZERO3 + "num_processes: 2\n", "VETTED-0006"),
    "trl0.14-optimizer": (ZERO3, "VETTED-0009"),
    "trl0.14-deepspeed0.19": (ZERO3, "VETTED-0010"),
    "trl0.21-transformers4.57": ("use_vllm: false\ngradient_checkpointing: true\n", "VETTED-0007"),
    "deepspeed0.19.2": ("zero_stage: 3\nuse_peft: true\nbf16: true\n", "VETTED-0026"),
}
DPO = """
import inspect, tempfile, datasets, tokenizers, transformers, trl
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "a": 1, "b": 2, "<end>": 3, "<unk>": 4}, "<unk>"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
tokens = dict(pad_token="<pad>", eos_token="<end>", bos_token="<end>", unk_token="<unk>")
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
data = datasets.Dataset.from_dict({"prompt": ["a b"] * 4, "chosen": ["a"] * 4, "rejected": ["b"] * 4})
options = dict(max_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to="none", save_strategy="no")
own = inspect.signature(trl.DPOTrainer.__init__).parameters
reads = {"processing_class" if "processing_class" in own else "tokenizer": tokenizer}
with tempfile.TemporaryDirectory() as folder:
    args = trl.DPOConfig(output_dir=folder, max_length=16, **options)
    trl.DPOTrainer(model, args=args, train_dataset=data, **reads).train()
"""


@dataclass(frozen=True)
class Broken:
    """An environment made of pins, and its question: a program, or a probe that `doctor --measure` finds red."""

    pins: tuple[str, ...]
    program: str = ""
    probe: str = ""


def _trl(version: str) -> Broken:
    pins = (
        f"trl=={version}",
        "transformers==4.55.4" if version == "0.22.2" else "transformers==4.51.3",
        "rich",
        "jinja2",
    )
    return Broken(pins, probe="train-cli" if version == "0.22.2" else "grpo-plain")


BY_HAND = {
    "peft0.17-transformers5": Broken(("peft==0.17.1", "transformers==5.0.0"), "import peft"),
    "datasets2.14-pyarrow21": Broken(("datasets==2.14.4", "pyarrow==21.0.0"), "import datasets"),
    "deepspeed0.12-numpy2": Broken(("deepspeed==0.12.6", "numpy==2.2.6"), "import deepspeed"),
    "deepspeed0.13-torch2.13": Broken(("deepspeed==0.13.5", "numpy==1.26.4"), "import deepspeed"),
    "accelerate1.0-transformers5": Broken(
        ("accelerate==1.0.1", "transformers==5.0.0"),
        "import transformers; transformers.TrainingArguments(output_dir='/nowhere', use_cpu=True)",
    ),
    "trl0.11-transformers4.46": Broken(
        ("trl==0.11.4", "transformers==4.46.3", "accelerate==1.1.1", "datasets==3.6.0", "rich"), DPO
    ),
    "trl0.16-steps": _trl("0.16.1"),
    "trl0.22-options": _trl("0.22.2"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints a row for each environment, returns 1 where one is not mended."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broken", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all sixteen")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/broken.json; other rows stay")
    options = parser.parse_args(arguments)
    home, rows = project.find(), []
    for name in options.names or [*CONTROLS, *BY_HAND]:
        rows.append(run(home, name))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if options.record:
            _record(home, rows)
    mended = sum(row["before"] == "fails" and row["after"] == "passes" for row in rows)
    print(f"{mended} of {len(rows)} broken environments are good after the first answer's commands")
    return 0 if mended == len(rows) else 1


def run(home: Project, name: str) -> dict[str, Any]:
    """Make an environment, and see whether the doctor's first answer mends it."""
    with home.holding("broken") as scratch:
        begin = time.monotonic()
        row = _of_control(home, name, scratch) if name in CONTROLS else _by_hand(home, name, scratch)
        return {"name": name, **row, "seconds": round(time.monotonic() - begin, 1)}


def _record(home: Project, rows: list[dict[str, Any]]) -> None:
    """Write the rows; those of environments that were not made now stay as they are."""
    file = evidence.path(home, "broken")
    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []
    known = {row["name"]: row for row in [*before, *rows]}
    ordered = [known[name] for name in [*CONTROLS, *BY_HAND] if name in known]
    with home.holding("broken") as scratch:
        evidence.record(home, "broken", "python -m benchmarks.broken --record", {"rows": ordered}, scratch)


def _of_control(home: Project, name: str, scratch: Path) -> dict[str, Any]:
    """A control: the output of the probes that fail is the log, and its options are the configuration."""
    locked, (config, advisory) = control.load(home, name), CONTROLS[name]
    (scratch / "config.yaml").write_text(config, encoding="utf-8")
    environment = hostenv.prepare(home, locked.bad, scratch, lambda _: None, keep=False)

    def ask(when: str) -> tuple[bool, str]:
        results = environments.probed(
            locked.bad.versions, locked.control.expect.fails, environment, home, scratch / when
        )
        log = "\n".join(f"{result.reason}\n{result.log_tail}" for result in results)
        return all(result.outcome == "passed" for result in results), log

    answer = [str(environment), "--config", str(scratch / "config.yaml")]
    try:
        return _mended(ask, answer, scratch, environment, locked.bad.stack.torch, advisory)
    finally:
        hostenv.remove(environment)


def _by_hand(home: Project, name: str, scratch: Path) -> dict[str, Any]:
    broken = BY_HAND[name]
    with _made(broken, scratch) as environment:

        def ask(when: str) -> tuple[bool, str]:
            if broken.probe:
                results = environments.probed({}, [broken.probe], environment, home, scratch / when)
                return results[0].outcome == "passed", results[0].reason or ""
            done = subprocess.run([environment / "bin" / "python", "-c", broken.program], cwd=scratch,
                                  capture_output=True, text=True, check=False, env=_clean(environment))  # fmt: skip
            return done.returncode == 0, done.stdout + done.stderr

        argv = [str(environment), *(["--measure"] if broken.probe else [])]
        return _mended(ask, argv, scratch, environment, environments.TORCH, "")


def _mended(
    ask: Callable[[str], tuple[bool, str]], argv: list[str], scratch: Path, environment: Path, torch: str, advisory: str
) -> dict[str, Any]:
    """Ask, type what the doctor prints first, and ask again."""
    good, log = ask("before")
    (scratch / "run.log").write_text(log, encoding="utf-8")
    # What it measures itself it is not told.
    answer = doctor("--python", *argv, *([] if "--measure" in argv else ["--log", str(scratch / "run.log")]))
    first = answer["findings"][0] if answer["findings"] else {"rule": "", "commands": [], "confidence": ""}
    joint = [answer["together"]["command"]] if answer["together"] else []
    commands = (joint or first["commands"]) if "--measure" in argv else (first["commands"] or joint)
    failed = [words for words in (typed(command, torch) for command in commands) if words]
    after, words = ask("after") if commands and not failed else (False, "")
    return {
        "rule": first["rule"], "confidence": first["confidence"], "expected": advisory,
        "commands": [command.replace(str(environment), "ENV") for command in commands],
        "before": "passes" if good else "fails", "after": "passes" if after else "fails",
        "output": "" if after else last_line("".join(failed) or words),
    }  # fmt: skip


def last_line(text: str) -> str:
    """The last words of an output, which name no folder of this machine."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:500]


def typed(command: str, torch: str) -> str:
    """Run a command for uv as it was printed; what it says where it fails."""
    program, *arguments = shlex.split(command)
    assert program == "uv", command
    env = {**os.environ, **machine.uv_environment(torch)}
    done = subprocess.run([machine.uv_binary(), *arguments], env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr or command


def doctor(*argv: str) -> Any:
    """The doctor's answer, as a shell with uv on its PATH gets it."""
    path = f"{Path(machine.uv_binary()).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "--json", *argv],
        cwd=project.find().root, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return json.loads(done.stdout)


@contextmanager
def _made(broken: Broken, scratch: Path) -> Iterator[Path]:
    """An environment of pins, with the CPU's torch; it lies in the scratch folder and goes with it."""
    environment = scratch / "environment"
    environments.make(environment, "setuptools<80", *broken.pins, UV_CACHE_DIR=str(scratch / "uv"))
    yield environment


def _clean(environment: Path) -> dict[str, str]:
    """What a program is started with: no downloads, and no home."""
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HF_HUB_OFFLINE": "1", "HOME": str(environment), "CUDA_VISIBLE_DEVICES": ""}


if __name__ == "__main__":
    sys.exit(main())
