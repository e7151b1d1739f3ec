"""Are 4-bit weights as QLoRA defines them, and are layers with such weights computed right?

Catches quantisation that is wrong without an error: a kernel that reads the scales or the packed halves in another
order, quantised scales that are not decoded, an adapter scaled by something other than alpha / r, a layer that passes
no gradient on. All of that still trains, but from a different model.

Quantises random weights with bitsandbytes and compares the decoded weights with the definition in the QLoRA paper,
computed independently. Then compares logits and gradients of a 4-bit model with a LoRA adapter with those of a plain
model with the decoded weights, and the adapter's product added to them. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from smoke.kit import extremes, quantized, tiny
from smoke.probe import Bound, Context, Probe, Reading

# The 16 values of NormalFloat, from appendix E of the QLoRA paper.
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
BLOCK = 64  # weights with a scale of their own
SCALES = 256  # scales with a scale of their own, where they are quantised, too

SHAPE = (192, 320)
TOKENS = 48

PROBE = Probe(
    matters="the policy is a different model than intended, or its adapter learns from wrong gradients",
    bounds=(
        Bound(
            "gradient_error",
            "the relative error of the worst tensor of the adapter: 1.4e-6 to 2.4e-6 over 12 seeds, the rounding "
            "of float32; 0.09 with a backward 2% off, 1 when a layer passes no gradient on, 4.8 with an adapter scaled "
            "by alpha / sqrt(r)",
            at_most=1e-4,
            headline=True,
        ),
        Bound(
            "forward_error",
            "of the logits, relative: 6.2e-7 to 9.3e-7 over 12 seeds; 1 or more with a wrong scale of the adapter, or "
            "with weights decoded wrong in this place only",
            at_most=1e-4,
        ),
        Bound(
            "eval_error",
            "as forward_error, in eval mode and without gradients, for which bitsandbytes has kernels of its own: "
            "5.6e-7 to 8.7e-7 over 30 seeds; 0.0081 to 0.0113 with the one for CPUs with instructions for bfloat16, "
            "which rounds to it",
            at_most=0.04,
        ),
        Bound(
            "gradient_error_after_eval",
            "as gradient_error, after that: 1.3e-6 to 2.0e-6 over 30 seeds. bitsandbytes 0.50.2, on CPUs with "
            "instructions for bfloat16, passes no gradient through a layer once it has been evaluated: 0.5 to 1.2 "
            "with Llama; an error with Qwen2, whose layers have a bias",
            at_most=1e-4,
        ),
        Bound(
            "adapter_effect",
            "what forward_error would be without the adapter: 0.90 to 1.16 over 12 seeds. Below its bound, a wrong "
            "scale would not show",
            at_least=0.3,
        ),
        Bound(
            "quantisation_effect",
            "what forward_error would be if the weights were not quantised: 0.25 to 0.37 over 12 seeds. Below its "
            "bound, wrong weights would not show",
            at_least=0.1,
        ),
        Bound(
            "code_error",
            "how much closer another of the 16 values is to a weight than the one it was given, in units of its scale: "
            "0 over 12 seeds; 0.12 in FP4, 2 with the two halves of a byte swapped",
            at_most=1e-5,
        ),
        Bound(
            "decoded_error",
            "how far a weight decodes from its value times its scale, in units of that scale: 4.1e-8 to 4.3e-8 over 12 "
            "seeds; 0.05 in FP4",
            at_most=1e-6,
        ),
        Bound(
            "scale_error",
            "as code_error and decoded_error for the scales, in units of the largest: 1.2e-7 to 2.3e-5 over 12 seeds, "
            "because the CPU's kernel looks codes up by 16 bits; 0.95 when their mean is not added, 1.6 when they are "
            "one block off",
            at_most=1e-4,
        ),
        Bound(
            "rounded_error",
            "how far weights that decode to bfloat16 are from those in float32, in units of the scale: 0.0034 to "
            "0.0037 over 12 seeds, and half a unit in the last place, 0.0039, at most",
            at_most=0.004,
        ),
    ),
    links=(
        "https://github.com/bitsandbytes-foundation/bitsandbytes/pull/1628",
        "https://github.com/huggingface/trl/issues/3466",
    ),
    needs=("torch", "transformers", "peft", "bitsandbytes"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Compare the weights, then a whole model."""
    yield from _weight_errors(context)
    yield from _model_errors(context)


def _weight_errors(context: Context) -> Iterator[Reading]:
    """The errors of bitsandbytes against the definition: weights in float32 and bfloat16, scales quantised and not."""
    import torch
    from bitsandbytes import functional

    weights = torch.randn(SHAPE, generator=torch.Generator().manual_seed(context.seed))
    # The scales of blocks differ, as they do between the channels of a trained model.
    weights *= torch.logspace(-2, 0, SHAPE[0])[:, None]
    code = torch.tensor(NF4, dtype=torch.float64)
    errors: dict[str, list[tuple[float, str]]] = {"code": [], "scale": [], "decoded": [], "rounded": []}
    for dtype, double in itertools.product((torch.float32, torch.bfloat16), (False, True)):
        original = weights.to(dtype)
        packed, state = functional.quantize_4bit(
            original.to(context.device), blocksize=BLOCK, compress_statistics=double, quant_type="nf4"
        )
        rounded = functional.dequantize_4bit(packed, state)
        state.dtype = torch.float32  # what it decodes to
        decoded, rounded, blocks = (
            tensor.cpu().double().view(-1, BLOCK)
            for tensor in (functional.dequantize_4bit(packed, state), rounded, original)
        )
        exact = blocks.abs().amax(dim=1, keepdim=True)
        # The largest weight of a block has code 1 or -1: it decodes to the scale.
        scales = decoded.abs().amax(dim=1, keepdim=True)
        chosen, excess = _nearest(decoded / scales, blocks / exact, code)
        how = f"weights in {dtype}, scales {'quantised' if double else 'in float32'}"
        errors["code"].append((excess, how))
        errors["decoded"].append((((decoded - chosen * scales) / scales).abs().max().item(), how))
        errors["rounded"].append((((rounded - decoded) / scales).abs().max().item(), how))
        errors["scale"].append((_scale_error(scales, exact) if double else _distance(scales, exact), how))
    for name, measured in errors.items():
        yield Reading(f"{name}_error", *extremes.worst(measured))


def _nearest(decoded: Any, exact: Any, code: Any) -> tuple[Any, float]:
    """The decoded values of the code, and how much farther they are from the exact values than the nearest ones."""
    chosen = code[(decoded[..., None] - code).abs().argmin(dim=-1)]
    excess = (exact - chosen).abs() - (exact[..., None] - code).abs().amin(dim=-1)
    return chosen, excess.max().item()


def _scale_error(scales: Any, exact: Any) -> float:
    """The error of quantised scales against their definition, in units of the largest of 256.

    That is: from a value of their own code, or from the one that is nearest to the exact scale less the mean of all.
    """
    import torch

    mean = exact.mean()
    ours, theirs = (
        torch.nn.functional.pad(tensor.flatten() - mean, (0, -len(exact) % SCALES)).view(-1, SCALES)
        for tensor in (exact, scales)
    )
    largest = ours.abs().amax(dim=1, keepdim=True)
    chosen, excess = _nearest(theirs / largest, ours / largest, _dynamic_code())
    off: float = (theirs / largest - chosen).abs().flatten()[: len(exact)].max().item()
    return extremes.largest((excess, off))


def _dynamic_code() -> Any:
    """The 256 values of the dynamic tree data type: seven decades, each with twice the values of the one below."""
    import torch

    positive = []
    for exponent in range(7):
        edges = torch.linspace(0.1, 1, 2**exponent + 1, dtype=torch.float64)
        positive.append((edges[:-1] + edges[1:]) / 2 * 10.0 ** (exponent - 6))
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return torch.cat([*positive, *(-part for part in positive), ends]).sort().values


def _model_errors(context: Context) -> Iterator[Reading]:
    """Compare a 4-bit model with an adapter with a plain one of the same weights."""
    import torch
    from bitsandbytes import functional
    from peft import get_peft_model

    directory = tiny.save(context.directory / "model", context.seed)
    policy = get_peft_model(quantized.load(directory, quantized.device(context), "float32"), quantized.lora())
    draw = torch.Generator().manual_seed(context.seed)
    adapter = {name: p for name, p in policy.named_parameters() if "lora_" in name}
    with torch.no_grad():
        for parameter in adapter.values():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    plain = tiny.make_model(context.seed)
    tokens = tiny.draw_tokens(random.Random(context.seed), TOKENS)
    unquantised = _forward(plain, tokens)

    pairs = {}
    for name, layer in quantized.layers(policy).items():
        wrapper = name.removesuffix(".base_layer")
        a, b = (adapter[f"{wrapper}.lora_{x}.default.weight"].detach().cpu() for x in "AB")
        target = plain.get_submodule(wrapper.removeprefix("base_model.model."))
        decoded = functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state).cpu()
        pairs[wrapper] = (a, b, target.weight)
        with torch.no_grad():
            target.weight.copy_(decoded)
    if len(pairs) != quantized.LAYERS:
        raise ValueError(f"{len(pairs)} layers are in 4 bits, not {quantized.LAYERS}")
    bare = _forward(plain, tokens)
    with torch.no_grad():
        for a, b, weight in pairs.values():
            weight.add_(quantized.ALPHA / quantized.RANK * b @ a)
    expected = _forward(plain, tokens)
    _loss(expected, tokens).backward()

    scale = quantized.ALPHA / quantized.RANK
    gradients = {}
    for wrapper, (a, b, weight) in pairs.items():
        gradients[f"{wrapper}.lora_A.default.weight"] = scale * b.T @ weight.grad
        gradients[f"{wrapper}.lora_B.default.weight"] = scale * weight.grad @ a.T

    def train() -> tuple[Any, float, str]:
        policy.train()
        policy.zero_grad()
        logits = _forward(policy, tokens)
        _loss(logits, tokens).backward()
        return logits, *extremes.worst(
            (_distance(adapter[name].grad, gradient), name) for name, gradient in gradients.items()
        )

    logits, error, where = train()
    yield Reading("forward_error", _distance(logits, expected))
    yield Reading("gradient_error", error, where)
    policy.eval()
    with torch.no_grad():
        yield Reading("eval_error", _distance(_forward(policy, tokens), expected))
    yield Reading("gradient_error_after_eval", *train()[1:])
    yield Reading("adapter_effect", _distance(bare, expected))
    yield Reading("quantisation_effect", _distance(bare, unquantised))


def _forward(model: Any, tokens: list[int]) -> Any:
    import torch

    ids = torch.tensor([tokens], device=model.device)
    return model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0]


def _loss(logits: Any, tokens: list[int]) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(tokens[1:], device=logits.device))


def _distance(result: Any, expected: Any) -> float:
    """The norm of the difference, as a share of the norm of the second."""
    result, expected = (tensor.detach().cpu().double() for tensor in (result, expected))
    share: float = ((result - expected).norm() / expected.norm()).item()
    return share
