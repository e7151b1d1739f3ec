"""A user's combination of options, as the row of the suite's covering array that it is, and what no level stands for.

The row has the combination at the suite's own values: a learning rate that moves a tiny model, few completions, a
narrow clipping range. smoke/kit/levels.py has the levels, smoke/kit/factors.py what each asks of TRL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from builder.certify import model_levels
from builder.certify.configuration import Configuration

LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
CORRECTIONS = ("sequence_mask", "token_truncate", "token_mask", "sequence_truncate")
# Of SAPO and VESPO, as TRL has them.
CONSTANTS = {
    "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0,
}  # fmt: skip
# The settings that have a part in the row or in the choice of probes.
READ = frozenset((
    "loss_type", "importance_sampling_level", "gradient_accumulation_steps", "steps_per_generation",
    "generation_batch_size", "per_device_train_batch_size", "num_iterations", "delta", "epsilon", "epsilon_high",
    "scale_rewards", "reward_funcs", "reward_model_name_or_path", "multi_objective_aggregation", "beta",
    "sync_ref_model", "use_bias_correction_kl", "mask_truncated_completions", "temperature", "top_p", "top_k",
    "min_p", "use_peft", "use_rslora", "lora_modules_to_save", "load_in_4bit", "load_in_8bit",
    "gradient_checkpointing", "gradient_checkpointing_kwargs", "optim", "max_grad_norm", "lr_scheduler_type",
    "save_strategy", "eval_strategy", "pad_to_multiple_of", "top_entropy_quantile", "entropy_coef",
    "num_generations", "use_vllm", "vllm_mode", "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode", "vllm_enable_sleep_mode", "bf16", "fp16", "use_liger_kernel", "use_liger_loss",
    "deepspeed", "fsdp", "accelerate_config", "num_processes", "dataloader_num_workers",
    "off_policy_mask_threshold", "vllm_importance_sampling_clip_min", "shuffle_dataset", "dataset_streaming",
    "chat_template_kwargs", "ref_model_sync_steps", "use_adaptive_entropy", *CONSTANTS,
))  # fmt: skip
# Names, logs, lengths and sizes, which the suite has its own of.
PLAIN = (
    "model_name", "model_revision", "dataset", "output_dir", "run_name", "project", "report_to", "log", "save_",
    "eval_", "hub_", "push_", "disable_tqdm", "trackio", "wandb", "num_completions", "learning_rate", "seed",
    "max_steps", "num_train_epochs", "max_completion_length", "max_prompt_length", "per_device_eval",
    "num_generations_eval", "lora_r", "lora_alpha", "lora_target_modules", "lora_task_type", "dataloader_",
    "use_cpu", "num_machines", "machine_", "main_", "overwrite_output_dir", "resume_from", "ddp_timeout",
    "vllm_gpu_memory", "vllm_max_model", "include_", "full_", "entropy_", "ref_model_mixup_alpha",
    "vllm_importance_sampling_clip_max",
)  # fmt: skip
SCALES = {
    "group": "group",
    "batch": "batch",
    "none": "none",
    "true": "group",
    "1": "group",
    "false": "none",
    "0": "none",
}


def row(own: Configuration) -> tuple[dict[str, str], list[str]]:
    """The row that the configuration is, and what about it no level stands for, in words."""
    notes: list[str] = []
    colocated = _colocated(own)
    corrected = colocated and own.on("vllm_importance_sampling_correction", True)
    chosen = {
        "loss": _known(own, "loss_type", LOSSES, notes),
        "ratio": _known(own, "importance_sampling_level", ("token", "sequence"), notes),
        **_batches(own),
        "clipping": _clipping(own),
        "scale": SCALES[_known(own, "scale_rewards", tuple(SCALES), notes)],
        "rewards": _rewards(own),
        "aggregation": "each first" if own.get("multi_objective_aggregation", "") == "normalize_then_sum" else "sum",
        "kl": _kl(own),
        "truncated": "masked" if own.on("mask_truncated_completions") else "counted",
        "off-policy": "counted" if own.get("off_policy_mask_threshold", None) is None else "masked",
        "sampling": _sampling(own),
        **model_levels.of(own.model, notes),
        "adapter": _adapter(own),
        "checkpointing": _checkpointing(own),
        "optimizer": "sgd" if str(own.get("optim", "")).startswith("sgd") else "adamw",
        "gradient norm": "clipped" if own.number("max_grad_norm", 1.0) > 0 else "free",
        "rate": "constant" if str(own.get("lr_scheduler_type", "linear")).startswith("constant") else "linear",
        "saving": "never" if own.off("save_strategy", "steps") else "resumed",
        "evaluation": "never" if own.off("eval_strategy", "no") else "at start and between",
        "prompts": "chat" if own.get("chat_template_kwargs", None) in (None, "", "{}", {}) else "chat with options",
        "padding": "to 16" if own.number("pad_to_multiple_of", 0) > 0 else "none",
        "entropy": _entropy(own),
        "constants": _constants(own, corrected, notes),
        "order": _order(own),
        "generations": "2" if own.number("num_generations", 8) == 2 else "3",
        "micro-batch": "six completions",
    }
    if own.processes == 1 and own.number("per_device_train_batch_size", 8) == 1 and _several_micro_batches(chosen):
        chosen |= {"micro-batch": "one completion", "generations": "2"}
    if "reference" in chosen["kl"] and chosen["adapter"] != "none":
        notes.append("TRL refuses sync_ref_model with an adapter: the reference is the model without it")
        chosen["kl"] = "weighted" if own.on("use_bias_correction_kl", True) else "plain"
    if "reference" in chosen["kl"] and chosen["saving"] == "resumed":
        notes.append("resuming with sync_ref_model: the reference starts over from the first model (VETTED-0170)")
        chosen["saving"] = "every step"
    if chosen["embedding"] == "tied" and chosen["adapter"] == "LoRA, whole head":
        notes.append("a tied embedding with a head that is trained as a whole")
        chosen["adapter"] = "LoRA"
    notes += [*_unjudged(own), *_unread(own)]
    if own.processes > 1:
        chosen |= {"backend": {2: "zero2", 3: "zero3"}.get(own.zero, "ddp"), "group": "on both ranks"}
    elif colocated:
        chosen |= {
            "correction": _known(own, "vllm_importance_sampling_mode", CORRECTIONS, notes) if corrected else "off",
            "sleep": "on" if own.on("vllm_enable_sleep_mode") else "off",
        }
        if chosen["loss"] == "vespo" and chosen["correction"].startswith("sequence"):
            notes.append("TRL refuses vespo with an importance of sequences: token_truncate stands for it")
            chosen["correction"] = "token_truncate"
    return chosen, notes


def _colocated(own: Configuration) -> bool:
    return own.processes == 1 and own.on("use_vllm") and own.get("vllm_mode", "colocate") == "colocate"


def _known(own: Configuration, option: str, values: tuple[str, ...], notes: list[str]) -> str:
    """The value of an option, or the first one where the suite does not know it."""
    value = str(own.get(option, values[0])).lower()
    if value in values:
        return value
    notes.append(f"{option}: {value}")
    return values[0]


def _batches(own: Configuration) -> dict[str, str]:
    accumulation = max(1, int(own.number("gradient_accumulation_steps", 1)))
    micro = int(own.number("steps_per_generation", 0))
    if not micro and (together := own.number("generation_batch_size", 0)):
        micro = int(together / max(1, own.number("per_device_train_batch_size", 8) * own.processes))
    micro = micro or accumulation
    if accumulation > 1 and micro < accumulation:
        generation = "twice a step"
    else:
        generation = "every second step" if micro > accumulation else "every step"
    return {
        "accumulation": str(accumulation) if accumulation < 3 else "4",
        "generation": generation,
        "iterations": "2" if own.number("num_iterations", 1) > 1 else "1",
    }


def _several_micro_batches(chosen: Mapping[str, str]) -> bool:
    """Is a generation for several micro-batches? A prompt needs two completions."""
    return chosen["accumulation"] != "1" and chosen["generation"] != "twice a step"


def _clipping(own: Configuration) -> str:
    if own.get("delta", None) is not None:
        return "two-sided"
    low = own.number("epsilon", 0.2)
    return "asymmetric" if own.number("epsilon_high", low) != low else "even"


def _rewards(own: Configuration) -> str:
    functions = own.get("reward_funcs", [])
    count = len(functions) if isinstance(functions, list) else 1
    return "two weighted" if count + bool(own.get("reward_model_name_or_path", "")) > 1 else "one"


def _kl(own: Configuration) -> str:
    if own.number("beta", 0.0) == 0:
        return "off"
    if own.on("sync_ref_model"):
        every_step = own.number("ref_model_sync_steps", 512) <= 1
        return "moving reference" if every_step else "reference of every second step"
    return "weighted" if own.on("use_bias_correction_kl", True) else "plain"


def _entropy(own: Configuration) -> str:
    if own.number("top_entropy_quantile", 1.0) < 1:
        return "top quarter"
    if own.on("use_adaptive_entropy"):
        return "adaptive bonus"
    return "bonus" if own.number("entropy_coef", 0.0) else "ignored"


def _constants(own: Configuration, corrected: bool, notes: list[str]) -> str:
    """By those that act: of the loss, and of the correction for vLLM."""
    loss = str(own.get("loss_type", LOSSES[0])).lower()
    changed = [name for name, usual in CONSTANTS.items() if own.number(name, usual) != usual]
    of_loss = any(name.startswith(f"{loss}_") for name in changed)
    least = own.number("vllm_importance_sampling_clip_min", 0.0) > 0 and corrected
    if of_loss != least and corrected and loss in ("sapo", "vespo"):
        notes.append(f"the constants of {loss} and the least importance: the suite changes both or none")
    return "own" if of_loss or least else "default"


def _order(own: Configuration) -> str:
    if own.on("dataset_streaming"):
        return "streamed"
    return "shuffled" if own.on("shuffle_dataset", True) else "as given"


def _sampling(own: Configuration) -> str:
    if own.number("min_p", 0.0) > 0:
        return "min-p"
    if own.number("top_k", 0) > 0:
        return "top-k"
    warmth = own.number("temperature", 1.0)
    if own.number("top_p", 1.0) < 1 or warmth > 1:
        return "hot, top-p"
    return "cold" if warmth < 1 else "plain"


def _adapter(own: Configuration) -> str:
    if not (own.on("use_peft") or own.on("load_in_4bit") or own.on("load_in_8bit")):
        return "none"
    if own.on("use_rslora"):
        return "rank-stabilised"
    whole = own.get("lora_modules_to_save", [])
    if "lm_head" in (whole if isinstance(whole, list) else [whole]):
        return "LoRA, whole head"
    quantized = own.on("load_in_4bit") and own.processes == 1 and not _colocated(own)
    return "LoRA on 4-bit" if quantized else "LoRA"


def _checkpointing(own: Configuration) -> str:
    if not own.on("gradient_checkpointing", True):
        return "off"
    options = own.get("gradient_checkpointing_kwargs", {})
    if isinstance(options, str):
        try:
            options = json.loads(options)
        except (ValueError, RecursionError):
            options = {}
    reentrant = isinstance(options, Mapping) and options.get("use_reentrant") is True
    return "reentrant" if reentrant else "not reentrant"


def _unjudged(own: Configuration) -> list[str]:
    """What the row leaves out, or shows by something else."""
    notes = []
    optimizer = str(own.get("optim", "adamw_torch"))
    if optimizer not in ("adamw_torch", "adamw_torch_fused", "sgd"):
        notes.append(f"the optimizer {optimizer}: {'SGD' if optimizer.startswith('sgd') else 'AdamW'} stands for it")
    if (schedule := str(own.get("lr_scheduler_type", "linear"))) not in ("linear", "constant"):
        notes.append(f"the schedule {schedule}")
    if own.on("load_in_8bit") or (own.on("load_in_4bit") and _adapter(own) != "LoRA on 4-bit"):
        notes.append("quantised weights, which probes of their own judge")
    if own.on("bf16", not own.on("fp16")) or own.on("fp16"):
        notes.append("16-bit numbers: the row is in float32, grpo-bf16-recipe judges bfloat16")
    if own.on("use_liger_kernel") or own.on("use_liger_loss"):
        notes.append("Liger's kernels")
    if "reference" in _kl(own) and _adapter(own) == "none" and own.on("use_bias_correction_kl", True):
        notes.append("use_bias_correction_kl with sync_ref_model: each is judged alone")
    if own.number("top_entropy_quantile", 1.0) < 1 and (
        own.number("entropy_coef", 0.0) or own.on("use_adaptive_entropy")
    ):
        notes.append("entropy_coef with top_entropy_quantile: the latter alone")
    if sum((own.number("top_p", 1.0) < 1, own.number("top_k", 0) > 0, own.number("min_p", 0.0) > 0)) > 1:
        notes.append("top_p, top_k and min_p together: one of them")
    return notes + _places(own)


def _places(own: Configuration) -> list[str]:
    """What of processes and samplers is judged otherwise."""
    notes = []
    launcher = str(own.get("accelerate_config", ""))
    if own.get("fsdp", "") or "fsdp" in launcher.lower():
        notes.append("FSDP: plain data parallelism stands for it")
    if own.zero == 1:
        notes.append("ZeRO-1: plain data parallelism stands for it")
    if own.zero > 1 and own.processes == 1:
        notes.append("DeepSpeed in one process: the row is without it")
    if own.on("use_vllm") and own.get("vllm_mode", "colocate") == "server":
        notes.append("vLLM as a server: the trainer samples by itself here")
    elif own.on("use_vllm") and own.processes > 1:
        notes.append("vLLM together with several processes: each is judged alone")
    return notes


def _unread(own: Configuration) -> list[str]:
    """The settings that nothing here reads, and that are not about names, logs or sizes alone."""
    unread = (name for name in own.settings if name not in READ and not name.startswith(PLAIN))
    return [f"{name}: {str(own.settings[name])[:60]}" for name in unread if own.settings[name] not in (None, False)]
