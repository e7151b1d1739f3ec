"""Are matrix products in the shapes of a policy right, and do they not crash?

Catches cuBLAS 12.1 on the H20, which divides by zero in half-precision products of some shapes: the process dies with
SIGFPE, and the reports blame the learning rate. Tries the shapes of those reports, those of Qwen2's layers and odd
ones, forward and backward, in every dtype. The results are compared with float64, because a product can also be wrong
without an error: a missing tile, or TF32 in place of float32.

Logs every product before it is computed, so that the last line of a crashed run names it. Needs one process; on a GPU,
where there are far more shapes, one GPU: those shapes that fit into its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from smoke.kit import extremes
from smoke.probe import Bound, Context, Probe, Reading

# Rows, inputs and outputs of a linear layer. Those of the reports come first.
Shape = tuple[int, int, int]
REPORTED: tuple[Shape, ...] = ((64, 14688, 1536), (32, 1024, 18432))
QWEN2: tuple[Shape, ...] = ((16, 896, 896), (16, 896, 128), (16, 896, 4864), (16, 4864, 896))
ODD: tuple[Shape, ...] = ((1, 896, 128), (127, 511, 333), (3, 17, 5))

# On a GPU: the layers of Qwen2 0.5B and 7B, by inputs and outputs, for a single token and up to a micro-batch.
LAYERS = (
    *((896, 896), (896, 128), (896, 4864), (4864, 896), (896, 151936)),
    *((3584, 3584), (3584, 512), (3584, 18944), (18944, 3584), (3584, 152064)),
)
ROWS = (1, 16, 63, 64, 256, 4096)

# The largest relative error from rounding the right result: half a unit in the last place.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}

STRIDE = 61
TILE = 32

PROBE = Probe(
    matters="a product that crashes ends a run without an explanation in any log; a wrong one goes unnoticed",
    bounds=(
        Bound(
            "error_bfloat16",
            "the largest error of an element, relative to it, or to the standard deviation of all where that is "
            "larger: 0.00389 on a CPU over 12 seeds, half a unit in the last place; 0.027 where 24 partial sums are "
            "added in bfloat16, as cuBLAS may with fewer; see missing_tile",
            at_most=8 * ROUNDING["bfloat16"],
            headline=True,
        ),
        Bound(
            "error_float16",
            "as error_bfloat16: 4.7e-4 to 4.9e-4 on a CPU over 12 seeds, half a unit in the last place",
            at_most=8 * ROUNDING["float16"],
        ),
        Bound(
            "error_float32",
            "as error_bfloat16: 1.4e-6 to 2.2e-6 on a CPU over 12 seeds, and up to 4e-6 with three products in "
            "bfloat16 in place of one; see tf32_error",
            at_most=1e-4,
        ),
        Bound(
            "missing_tile",
            f"the error if the last {TILE} of 14688 terms were left out: 0.18 to 0.22 over 12 seeds. Below its bound, "
            "the errors prove nothing",
            at_least=0.1,
        ),
        Bound(
            "tf32_error",
            "what error_float32 would be in TF32: 0.0010 to 0.0013 over 12 seeds. Below its bound, it proves nothing",
            at_least=3e-4,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2906",
        "https://github.com/pytorch/pytorch/issues/152017",
        "https://github.com/pytorch/pytorch/issues/133548",
        "https://github.com/vllm-project/vllm/issues/4392",
    ),
    needs=("torch",),
    gpus=1,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Compute the products, compare them with float64, and measure the error of wrong ones."""
    numbers = Numbers(context)
    for dtype, shapes in _shapes(context.device).items():
        errors = [error for shape in shapes for error in _layer(numbers, shape, dtype)]
        yield Reading(f"error_{dtype}", *extremes.worst(errors))

    rows, inputs, outputs = REPORTED[0]
    x, weight = numbers.take("x", rows, inputs), numbers.take("w", outputs, inputs)[: 4 * STRIDE]
    exact = x.double() @ weight.double().T
    tile = x[:, -TILE:].double() @ weight[:, -TILE:].double().T
    yield Reading("missing_tile", _error(exact - tile, exact, inputs))
    # Numbers around 1 have as many bits in float16 as in TF32.
    yield Reading("tf32_error", _error(x.half().double() @ weight.half().double().T, exact, inputs))


def _shapes(device: str) -> dict[str, tuple[Shape, ...]]:
    few = (*REPORTED, *QWEN2, *ODD)
    if device == "cpu":
        # Without instructions for float16, a CPU takes seconds for the large ones.
        return {"bfloat16": few, "float16": ODD, "float32": few}
    import torch

    free = torch.cuda.mem_get_info()[0]
    many = [*few, *((rows, *layer) for layer in LAYERS for rows in ROWS)]
    fitting = tuple(shape for shape in many if _bytes(shape) <= free)
    print(f"{len(fitting)} of {len(many)} shapes fit into {free / 1e9:.1f} GB", flush=True)
    return dict.fromkeys(("bfloat16", "float16", "float32"), fitting)


def _bytes(shape: Shape) -> int:
    """The most memory that the products of a layer take: matrices in float32, and the weight in float64 as well."""
    rows, inputs, outputs = shape
    weight, activations = inputs * outputs, rows * (inputs + outputs)
    # The weight: drawn, used, transposed, its gradient, in float64. The activations: drawn, used, computed.
    return 24 * weight + 12 * activations


class Numbers:
    """Random numbers of unit variance, drawn once: the same name and size give the same matrix."""

    def __init__(self, context: Context) -> None:
        import torch

        self._device = context.device
        self._generator = torch.Generator(context.device).manual_seed(context.seed)
        self._drawn: dict[str, Any] = {}

    def take(self, name: str, rows: int, columns: int) -> Any:
        """A matrix, in float32."""
        import torch

        if name not in self._drawn or self._drawn[name].numel() < rows * columns:
            self._drawn[name] = torch.randn(rows * columns, generator=self._generator, device=self._device)
        return self._drawn[name][: rows * columns].view(rows, columns)


def _layer(numbers: Numbers, shape: Shape, dtype: str) -> Iterator[tuple[float, str]]:
    """The products of a linear layer, each with its error: forward, with the weight in both layouts, and backward."""
    import torch

    rows, inputs, outputs = shape
    kind = getattr(torch, dtype)
    x = numbers.take("x", rows, inputs).to(kind).requires_grad_()
    weight = numbers.take("w", outputs, inputs).to(kind).requires_grad_()
    gradient = numbers.take("dy", rows, outputs).to(kind)
    transposed = weight.detach().T.contiguous()
    y: list[Any] = []

    def forward() -> Any:
        y.append(torch.nn.functional.linear(x, weight))
        return y[0]

    def backward(to: Any) -> Any:
        return torch.autograd.grad(y[0], to, gradient, retain_graph=True)[0]

    exact_x, exact_weight = x.detach().double(), weight.detach().double()
    some, of_weight = _sample(rows), _sample(outputs)
    exact_y = exact_x[some] @ exact_weight.T
    exact_dx = gradient[some].double() @ exact_weight
    exact_dw = gradient.T[of_weight].double() @ exact_x
    products: tuple[tuple[str, Callable[[], Any], list[int], Any, int], ...] = (
        ("x @ w", lambda: x.detach() @ transposed, some, exact_y, inputs),
        ("linear(x, w)", forward, some, exact_y, inputs),
        ("dy @ w", lambda: backward(x), some, exact_dx, outputs),
        ("dy.T @ x", lambda: backward(weight), of_weight, exact_dw, rows),
    )
    for name, compute, compared, exact, terms in products:
        product = f"{dtype} {name} with {rows} rows, {inputs} inputs, {outputs} outputs"
        print(product, flush=True)
        yield _error(compute().detach()[compared].double(), exact, terms), product


def _sample(count: int) -> list[int]:
    """The rows of a product to compare: not all, because float64 is slow, but at least one in every tile."""
    return sorted({*range(0, count, STRIDE), count - 1})


def _error(result: Any, exact: Any, terms: int) -> float:
    """The largest error of a sum of `terms` terms, relative to the sum, or to its standard deviation if larger."""
    worst: float = ((result - exact).abs() / exact.abs().clamp(min=terms**0.5)).max().item()
    return worst
