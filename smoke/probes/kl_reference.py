"""Is the KL divergence measured against the model that training started from?

Catches a wrong reference model while the KL divergence still looks plausible: it moves along with the policy, is loaded
from somewhere else, or is the policy itself because the adapter stays on. The penalty then pulls in a wrong direction,
or does nothing.

Trains three steps on scripted completions with a KL penalty, once all weights and once a LoRA adapter, whose reference
is the model without it. The KL divergence that the trainer logs at each step is compared with one computed from the
parameters: those of the policy at that step (for the adapter, the product of its matrices added to the weights) and
those from before training. Needs one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, grpo, reference, scripted, tiny
from smoke.probe import Bound, Context, Probe, Reading

STEPS = 3
BETA = 0.1
RANK, ALPHA = 4, 8
# Enough for a KL divergence that shows; the adapter's matrices begin small.
LEARNING_RATE, ADAPTER_RATE = 0.05, 0.5

PROBE = Probe(
    matters="a KL penalty towards the wrong model keeps the policy in the wrong place, or does not keep it at all",
    bounds=(
        Bound(
            "kl_error",
            "the largest difference between the logged value and that of the parameters: 1.0e-7 to 2.6e-6 over 36 "
            "seeds; as much as kl_last when the reference is the policy or the adapter stays on",
            "nats",
            at_most=1e-4,
            headline=True,
        ),
        Bound("kl_first", "nothing has moved yet: exactly 0 over 36 seeds", "nats", at_most=1e-6),
        Bound(
            "kl_least",
            "the estimate exp(d) - d - 1 is never negative: 0 over 36 seeds; -0.4 with the difference d itself",
            "nats",
            at_least=-1e-6,
        ),
        Bound(
            "kl_last",
            "that of the parameters in the training that moved least: 0.15 to 1.6 over 36 seeds. Below its bound, "
            "kl_error proves nothing",
            "nats",
            at_least=0.05,
        ),
        Bound("reference_changed", "no step may touch the reference, bit for bit", "tensors", equals=0),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3194",
        "https://github.com/huggingface/trl/pull/2806",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train both ways, and compare the logged KL divergence with that of the parameters."""
    import torch
    from peft import LoraConfig

    model = tiny.save(context.directory / "model", context.seed)
    initial = grpo.snapshot(tiny.make_model(context.seed))
    script = scripted.write(context.seed, 2)
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    logged: dict[str, list[float]] = {}
    computed: dict[str, list[float]] = {}
    changed = []
    for case, options in (
        ("all weights", {"learning_rate": LEARNING_RATE}),
        ("adapter", {"learning_rate": ADAPTER_RATE, "peft_config": lora}),
    ):
        training = scripted.Training(context, script, model, max_steps=STEPS, beta=BETA, **options)
        steps = training.run()
        logged[case] = [entry["kl"] for entry in training.trainer.state.log_history if "kl" in entry]
        if case == "adapter":
            policies = [_plain(step.before, merge=True) for step in steps]
            base = _plain(steps[-1].after, merge=False)
        else:
            policies = [step.before for step in steps]
            base = grpo.snapshot(training.trainer.ref_model)
        computed[case] = [_kl(script, policy, initial) for policy in policies]
        changed += [f"{case}: {name}" for name in initial if not torch.equal(base[name], initial[name])]
    detail = f"logged {logged}, computed {computed}"
    # As tensors, because their max() and min() do not skip NaN.
    first, second = (torch.tensor([values[case] for case in values]) for values in (logged, computed))
    yield Reading("kl_error", (first - second).abs().max().item(), detail)
    yield Reading("kl_first", first[:, 0].abs().max().item(), detail)
    yield Reading("kl_least", first.min().item(), detail)
    yield Reading("kl_last", second[:, -1].min().item(), detail)
    yield Reading("reference_changed", len(changed), ", ".join(changed))


def _kl(script: scripted.Script, policy: dict[str, Any], base: dict[str, Any]) -> float:
    """The mean estimate of the KL divergence, as GRPO estimates it for a token that the policy has sampled."""
    import torch

    model = tiny.make_model(0).double()
    both = ({name: weight.double() for name, weight in weights.items()} for weights in (policy, base))
    with torch.no_grad():
        now, first = (reference.log_probs(model, weights, script.samples, 1.0) for weights in both)
    estimates = [torch.exp(b - a) - (b - a) - 1 for a, b in zip(now, first, strict=True)]
    if adapter.kl_average() == "sequence":
        estimates = [estimate.mean()[None] for estimate in estimates]
    return float(torch.cat(estimates).mean())


def _plain(weights: dict[str, Any], *, merge: bool) -> dict[str, Any]:
    """The parameters of the model below a LoRA adapter, by its own names, with what the adapter adds if `merge`."""
    plain = {}
    for name, weight in weights.items():
        if ".lora_" in name:
            continue
        layer = name.removesuffix(".base_layer.weight")
        if merge and layer != name:
            a, b = (weights[f"{layer}.lora_{which}.default.weight"].double() for which in "AB")
            weight = weight.double() + ALPHA / RANK * b @ a
        plain[name.removeprefix("base_model.model.").replace(".base_layer", "")] = weight
    return plain
