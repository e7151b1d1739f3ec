"""Will it fit? The memory of one GPU against what the options of a run need, as advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.check import Check
from runtime.config import architecture, files, memory
from runtime.config.architecture import ATTENTION, MLP, Architecture
from runtime.config.memory import Job
from runtime.config.run import Machine, Run
from runtime.config.sharding import Sharding

GIB = 2.0**30
LEAST = 0.1 * GIB
GROUPS = ("grpo", "rloo")
REFERRED = ("grpo", "rloo", "dpo", "kto")  # trainers that may hold a second model
PROMPT = 512  # tokens: what is assumed of prompts where no option limits them
FULL = 0.9  # of the GPU's memory: what is left is for CUDA itself, and for the error of the estimate
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
BUCKET = 5e8  # numbers: DeepSpeed's default
# Bytes of the optimizer's state for each trained parameter of 4 bytes: names that begin so; AdamW's otherwise.
STATES = {
    "paged_": 0, "sgd": 0, "adafactor": 0, "lion_8bit": 1, "lion": 4, "rmsprop": 4, "adagrad": 4,
    "adamw_8bit": 2, "adamw_bnb_8bit": 2, "adamw_torch_8bit": 2, "adamw_torch_4bit": 1, "ademamix_8bit": 3,
    "ademamix": 12,
}  # fmt: skip
# What to try, one after another: an option and a value that takes less. Training the weights themselves in bfloat16 is
# not among them: small updates are lost.
SAVERS: tuple[tuple[str, Any], ...] = (
    ("gradient_checkpointing", True), ("vllm_enable_sleep_mode", True), ("per_device_train_batch_size", 1),
    ("optim", "adamw_8bit"), ("use_peft", True), ("load_in_4bit", True), ("max_completion_length", 512),
)  # fmt: skip


def look(run: Run, machine: Machine, site: Path, here: Path, environ: Mapping[str, str]) -> list[Check]:
    """One line: "ok" if it fits; "advice" with what takes less if it may not. Empty where too little is known."""
    model = _model(run, here, environ)
    parts = _parts(run, model, machine, site) if model else {}
    if model is None or not parts:
        return []
    total, size = machine.memory, sum(parts.values())
    if size < LEAST:
        return [Check("ok", f"less than {_gib(LEAST)} GiB")]
    words = f"about {_gib(size)} GiB" if total is None else f"about {_gib(size)} of {_gib(total)} GiB"
    shown = sorted((part for part in parts.items() if part[1] >= 0.01 * size), key=lambda part: -part[1])
    message = f"{words}: {', '.join(f'{name} {_gib(part)}' for name, part in shown)}"
    if total is None or size <= FULL * total:
        return [Check("ok", message)]
    others = [
        f"{name}: {str(value).lower()} takes about {_gib(less)}"
        for name, value, less in _savers(run, model, machine, site, size)
    ]
    return [Check("advice", f"it may not fit: {message}", "\n         ".join(others))]


def _gib(size: float) -> str:
    return f"{size / GIB:.0f}" if size >= 10 * GIB else f"{size / GIB:.1f}"


def _savers(
    run: Run, model: Architecture, machine: Machine, site: Path, size: float
) -> Iterator[tuple[str, Any, float]]:
    """Options that take clearly less, each alone."""
    for name, value in SAVERS:
        if name not in run.options:
            continue
        settings = {**run.settings, name: value}
        if name == "load_in_4bit":
            settings["use_peft"] = True  # it needs an adapter
        parts = _parts(replace(run, settings=settings), model, machine, site)
        if parts and (less := sum(parts.values())) < 0.9 * size:
            yield name, value, less
    if run.ranks > 1 and run.sharding == Sharding(mixed=run.sharding.mixed):
        parts = _parts(replace(run, sharding=Sharding(stage=3)), model, machine, site)
        yield "accelerate_config", "zero3", sum(parts.values())


def _parts(run: Run, model: Architecture, machine: Machine, site: Path) -> dict[str, float]:
    work = job(run, model, machine, site)
    return {name: size for name, size in memory.peak(work).items() if size} if work else {}


def _model(run: Run, here: Path, environ: Mapping[str, str]) -> Architecture | None:
    """The model in a folder, or in the Hub's cache."""
    name = str(run.value("model_name_or_path"))
    if (here / name / "config.json").is_file():
        return architecture.read(here / name)
    cache = files.cached("models", name, environ)
    try:
        commit = (cache / "refs" / str(run.value("model_revision") or "main")).read_text(encoding="utf-8").strip()
        return architecture.read(cache / "snapshots" / commit)
    except (OSError, ValueError):
        return None


def job(run: Run, model: Architecture, machine: Machine, site: Path) -> Job | None:
    """What one GPU of a run holds; None where a length is not known."""
    length, answer = _lengths(run)
    if not length:
        return None
    rows = int(run.number("per_device_train_batch_size") or 8)
    tokens = rows * length * (2 if run.trainer in ("dpo", "kto", "reward") else 1)
    stored = _stored(run, model)
    mixed = run.bf16 or run.true("fp16")
    adapter = _adapter(run, model)
    steps = int(run.number("gradient_accumulation_steps") or 1)
    work = Job(
        model,
        tokens=tokens,
        scored=0 if run.trainer == "reward" or _fused(run, site) else rows * answer if answer else tokens,
        adapter=adapter,
        weight=stored,
        linear={"4bit": 0.53, "8bit": 1.0}.get(run.quantisation or ""),
        activation=2 if mixed else stored,
        residual=stored,
        cast=2 if mixed and stored == 4 and not adapter else 0,
        accumulated=steps > 1,
        checkpointing=run.true("gradient_checkpointing"),
        reference=stored if _referred(run) else 0,
        cached=_cached(run, rows, steps, length),
        **_optimizer(run, 4 if adapter else stored, machine),
    )
    if run.vllm_mode == "colocate" and machine.memory:
        share = run.number("vllm_gpu_memory_utilization") or 0.3
        work = replace(work, vllm=share * machine.memory, sleeps=run.true("vllm_enable_sleep_mode"))
    return _divided(work, run, mixed=mixed)


def _lengths(run: Run) -> tuple[int, int]:
    """The longest row, and the part of it that is scored on its own; 0 for all."""
    if run.trainer in GROUPS:
        answer = int(run.number("max_completion_length") or 0)
        prompt = int(run.number("max_prompt_length") or PROMPT)
        return (prompt + answer if answer else 0), answer
    return int(run.number("max_length") or run.number("max_seq_length") or 0), 0


def _stored(run: Run, model: Architecture) -> int:
    """Bytes of a weight as it is loaded. TRL's and Transformers' default is float32, where nothing says otherwise."""
    keywords = run.value("model_init_kwargs")
    keywords = keywords if isinstance(keywords, Mapping) else {}
    dtype = keywords.get("dtype") or keywords.get("torch_dtype") or run.value("dtype") or run.value("torch_dtype")
    return BYTES.get(model.dtype if dtype == "auto" else str(dtype), 4)


def _adapter(run: Run, model: Architecture) -> int:
    if not run.true("use_peft"):
        return 0
    names = run.value("lora_target_modules") or ["q_proj", "v_proj"]  # PEFT's default
    names = names if isinstance(names, list) else [names]
    targets = None if names == ["all-linear"] else tuple(name for name in names if name in (*ATTENTION, *MLP))
    return max(1, model.adapter(int(run.number("lora_r") or 16), targets))


def _optimizer(run: Run, number: int, machine: Machine) -> dict[str, Any]:
    """Bytes for each trained parameter of `number` bytes: gradient, state, and what a step takes besides."""
    name = str(run.value("optim") or "")
    known = next((size for beginning, size in STATES.items() if name.startswith(beginning)), None)
    # Before torch 2.8, Trainer's default makes a copy in its step.
    copies = name == "adamw_torch" or (not name and not machine.fused)
    state = 2 * number if known is None else known * number / 4
    return {"gradient": number, "state": state, "step": number if copies else 0}


def _fused(run: Run, site: Path) -> bool:
    """Whether logits are computed in parts: by Liger, or by a TRL that puts its own head on the model."""
    if run.true("use_liger_kernel") or run.true("use_liger_loss"):
        return True
    try:
        return "add_fused_lm_head(" in (site / f"trl/trainer/{run.trainer}_trainer.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _referred(run: Run) -> bool:
    """Whether a second model is there: a reference for the KL divergence. An adapter is its own."""
    if run.trainer not in REFERRED or run.true("use_peft") or run.true("precompute_ref_log_probs"):
        return False
    return run.trainer not in GROUPS or (run.number("beta") or 0) > 0


def _cached(run: Run, rows: int, steps: int, length: int) -> int:
    """Tokens in the cache while the model itself generates."""
    if run.trainer not in GROUPS or run.vllm_mode != "off":
        return 0
    if batch := run.number("generation_batch_size"):
        return int(batch) * length // run.ranks
    together = int(run.number("steps_per_generation") or steps) if "steps_per_generation" in run.options else 1
    return rows * together * length


def _divided(work: Job, run: Run, *, mixed: bool) -> Job:
    """The same under DeepSpeed, FSDP or DistributedDataParallel."""
    shards, ranks = run.sharding, run.ranks
    if shards.stage is not None:
        if mixed:
            # Weights in 2 bytes; a copy in 4 is with the optimizer.
            work = replace(work, weight=2, gradient=2, state=work.state + 4, step=0, residual=2, cast=0)
        if shards.cpu_optimizer:
            work = replace(work, state=0)
        return replace(
            work,
            weight=0 if shards.cpu_weights else work.weight,
            state_ranks=ranks if shards.stage >= 1 else 1,
            gradient_ranks=ranks if shards.stage >= 2 else 1,
            weight_ranks=ranks if shards.stage == 3 else 1,
            gathered=shards.stage == 3,
            buckets=2 * min(BUCKET, work.trained) * work.gradient,
        )
    if shards.fsdp:
        offloaded = {"weight": 0, "gradient": 0, "state": 0} if shards.cpu_weights else {}
        divided = {"weight_ranks": ranks, "gradient_ranks": ranks, "state_ranks": ranks}
        return replace(work, residual=work.activation, cast=0, gathered=True, **divided, **offloaded)  # type: ignore[arg-type]
    return replace(work, buckets=work.trained * work.gradient) if ranks > 1 else work
