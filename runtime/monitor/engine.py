"""vLLM inside the trainer: are its weights the trainer's when it generates, and did a sync follow every update?

Compared are rows of a few tensors, others each time, rounded to vLLM's type. vLLM concatenates some tensors; a tensor
that it packs, quantises or shards has another shape and is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .loss import fetched

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
TENSORS, ROWS, COLUMNS = 32, 4, 64  # of a comparison
PEFT = "base_model.model."


def owner(trainer: Any) -> Any:
    """What keeps the engine: an object of its own since TRL 0.29, before that the trainer."""
    return getattr(trainer, "vllm_generation", None) or trainer


def sync_name(keeper: Any) -> str | None:
    """The method that sends the weights to vLLM."""
    return next((name for name in ("sync_weights", "_move_model_to_vllm") if hasattr(keeper, name)), None)


def model_of(llm: Any) -> Any:
    """The model in an engine that runs in this process."""
    return llm.llm_engine.model_executor.driver_worker.model_runner.model


class Weights:
    """The trainer's weights by the names without PEFT, and what adapters add to them."""

    def __init__(self, model: Any) -> None:
        self.parameters: dict[str, Any] = {}
        self.adapters: dict[str, list[tuple[Any, Any, float]]] = {}
        for name, parameter in model.named_parameters():
            plain = name.replace("_checkpoint_wrapped_module.", "").replace("modules_to_save.default.", "")
            if "original_module" in plain or ".lora_" in plain:
                continue
            self.parameters[plain.replace(PEFT, "").replace(".base_layer", "")] = parameter
        for name, module in model.named_modules():
            layers = getattr(module, "lora_A", None)
            active = [key for key in module.active_adapters if key in layers] if layers else []
            if active and not getattr(module, "disable_adapters", False):
                plain = name.replace(PEFT, "") + ".weight"
                self.adapters[plain] = [
                    (module.lora_B[key].weight, module.lora_A[key].weight, module.scaling[key]) for key in active
                ]

    def rows(self, name: str, first: int, number: int) -> tuple[Any, Any]:
        """Rows of a weight as vLLM should have them, in float32, and of what the adapters add; the rest is left out."""
        tensor = self.parameters[name].detach()
        part = tensor[first : first + number, :COLUMNS] if tensor.dim() > 1 else tensor[first : first + number]
        part, added = part.float(), None
        for up, down, scale in self.adapters.get(name, ()):
            delta = scale * (up.detach()[first : first + number].float() @ down.detach()[:, :COLUMNS].float())
            added = delta if added is None else added + delta
        return (part if added is None else part + added), added


def parts(name: str) -> list[str]:
    """The trainer's names for the parts of vLLM's tensor."""
    return next(([name.replace(key, part) for part in FUSED[key]] for key in FUSED if key in name), [name])


def stale(weights: Weights, engine: Mapping[str, Any], turn: int) -> tuple[int, int]:
    """How many of vLLM's tensors differ from the trainer's, and how many were compared."""
    names = [name for name in engine if all(part in weights.parameters for part in parts(name))]
    flags: list[Any] = []
    places: list[int] = []
    compared = 0
    for place in range(min(TENSORS, len(names))):
        name = names[(turn * TENSORS + place) % len(names)]
        theirs, sources = engine[name].detach(), [weights.parameters[part] for part in parts(name)]
        same_width = all(source.shape[1:] == theirs.shape[1:] for source in sources)
        lengths = [source.shape[0] if source.dim() else 0 for source in sources]
        # vLLM pads vocabularies, so it may have more rows.
        if not same_width or not theirs.is_floating_point() or not all(lengths) or sum(lengths) > theirs.shape[0]:
            continue
        differ = _differ(weights, parts(name), lengths, theirs, turn)
        flags += differ
        places += [compared] * len(differ)
        compared += 1
    # Together: each fetch waits for the GPU.
    return len({place for place, flag in zip(places, fetched(flags)) if flag}), compared


def _differ(weights: Weights, names: list[str], lengths: list[int], theirs: Any, turn: int) -> list[Any]:
    """Whether each part of a tensor differs, as a tensor of one element."""
    start, flags = 0, []
    for name, length in zip(names, lengths):
        number = min(ROWS if theirs.dim() > 1 else COLUMNS, length)
        first = (turn * 7919) % (length - number + 1)
        mine, added = weights.rows(name, first, number)
        mine = mine.to(theirs.device)
        there = theirs[start + first : start + first + number]
        there = (there[:, :COLUMNS] if theirs.dim() > 1 else there).float()
        rounded = mine.to(theirs.dtype).float()
        if added is None:
            flags.append((there != rounded).any())
        else:  # merged and rounded in the base model's type: equal up to that, and to a tenth of what is added
            coarse = mine.abs().max() * (2**-6 if theirs.element_size() < 4 else 1e-5)
            flags.append((there - rounded).abs().max() > coarse + 0.1 * added.abs().max().to(theirs.device))
        start += length
    return flags
