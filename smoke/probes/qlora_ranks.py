"""Does GRPO train one adapter on a 4-bit model with a copy on the device of every rank?

Catches "You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device than the one
you're training on", which accelerate raises for a device map with the first GPU on every rank; "Expected to mark a
variable ready only once", from adapters with TRL's default checkpointing before 0.27; and ranks that train without an
error, but each its own adapter.

Each rank loads the model on its own device, trains on its own prompts, and shares its gradients from before averaging
and its final state with the other. Needs two processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from smoke.kit import extremes, grpo, quantized, tiny
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2

PROBE = Probe(
    matters="a 4-bit run on several GPUs is refused, or its ranks train different policies and save one of them",
    bounds=(
        Bound(
            "ranks_differ",
            "both ranks have the same adapter in the end, bit for bit",
            "tensors",
            equals=0,
            headline=True,
        ),
        Bound(
            "gradient_error",
            "the relative distance of the gradient that the optimizer gets from the mean of the ranks' own gradients, "
            "at the worst step: 0.0018 to 0.0020 over 12 seeds, from averaging in bfloat16; 0.7 or more when "
            "each keeps its own",
            at_most=0.01,
        ),
        Bound(
            "gradients_differ",
            "the relative distance between the ranks' own gradients: 1.1 to 1.5 over 12 seeds. Below its bound, "
            "gradient_error proves nothing",
            at_least=0.3,
        ),
        Bound("frozen_differ", "both ranks have the same 4-bit weights and scales, bit for bit", "tensors", equals=0),
        Bound("elsewhere", "every tensor of a rank, scales included, is on its own device", "tensors", equals=0),
        grpo.MOVED,
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2760",
        "https://github.com/huggingface/trl/issues/4782",
        "https://github.com/huggingface/trl/pull/6157",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "bitsandbytes"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, and compare them."""
    import torch.distributed as dist

    # Every rank writes its own copy, from the same seed: with torch.distributed set up, only rank 0 would write.
    directory = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    cpu = context.device == "cpu"
    reward = grpo.Reward()
    trainer = grpo.make_trainer(
        context,
        quantized.load(directory, _device(context)),
        reward,
        peft_config=quantized.lora(),
        bf16=True,
        use_cpu=cpu,
        # Gradients are compared after clipping: large enough to clip none.
        max_grad_norm=1e9,
        **({"ddp_backend": "gloo"} if cpu else {}),
    )
    own, used = _note_gradients(trainer)
    before = grpo.snapshot(trainer.model)
    trainer.train()
    yield from grpo.check(trainer, reward)
    yield grpo.moved(before, trainer.model)

    # accelerate numbers CPUs as well, torch does not.
    device = "cpu" if cpu else str(trainer.accelerator.device)
    wrong = {name: str(t.device) for name, t in _tensors(trainer.model).items() if str(t.device) != device}
    yield Reading("elsewhere", len(wrong), f"rank {context.rank} trains on {device}, but {wrong}")
    everything = {name: tensor.cpu() for name, tensor in trainer.model.state_dict().items()}
    ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(ranks, (everything, own))
    (all_first, first), (all_second, second) = ranks
    differ = [name for name in all_first if not all_first[name].equal(all_second[name])]
    adapter = [name for name in differ if "lora_" in name]
    yield Reading("ranks_differ", len(adapter), ", ".join(adapter))
    frozen = [name for name in differ if "lora_" not in name]
    yield Reading("frozen_differ", len(frozen), ", ".join(frozen))
    errors = [_distance(used[step], (first[step] + second[step]) / 2) for step in range(grpo.STEPS)]
    yield Reading("gradient_error", extremes.largest(errors), f"of the steps: {errors}")
    apart = [_distance(first[step], second[step]) for step in range(grpo.STEPS)]
    yield Reading("gradients_differ", extremes.smallest(apart), f"of the steps: {apart}")


def _device(context: Context) -> str | int:
    """The rank's own device; on a GPU, determined as a user does it."""
    if context.device == "cpu":
        return quantized.device(context)
    from accelerate import PartialState

    index: int = PartialState().local_process_index
    return index


def _tensors(model: Any) -> dict[str, Any]:
    """All parameters and buffers, and the tensors that a 4-bit layer needs to decode its weight."""
    import torch

    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, layer in quantized.layers(model).items():
        state = layer.weight.quant_state
        for key, value in (*vars(state).items(), *vars(state.state2).items()):
            if isinstance(value, torch.Tensor):
                tensors[f"{name}.{key}"] = value
    return tensors


def _note_gradients(trainer: Any) -> tuple[list[Any], list[Any]]:
    """For each step, the rank's own gradient of the adapter, and the one that the optimizer gets."""
    import torch
    from transformers import TrainerCallback

    parameters = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
    latest: dict[str, Any] = {}
    own: list[Any] = []
    used: list[Any] = []

    def flat(tensors: dict[str, Any]) -> Any:
        return torch.cat([tensors[name].detach().cpu().double().flatten() for name in parameters])

    def note(name: str, gradient: Any) -> None:
        latest[name] = gradient.detach().clone()

    for name, parameter in parameters.items():
        parameter.register_hook(partial(note, name))

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            own.append(flat(latest))
            used.append(flat({name: p.grad for name, p in parameters.items()}))

    trainer.add_callback(Note())
    return own, used


def _distance(result: Any, expected: Any) -> float:
    """The norm of the difference, as a share of the norm of the second."""
    share: float = ((result - expected).norm() / expected.norm()).item()
    return share
