"""Does grpo-vllm-colocate notice a sampler that answers from a copy of its first weights, as vLLM does unpatched?"""

from __future__ import annotations

import inspect

from tests.sabotage._break import sabotage

CAUGHT_BY = ()
CPU = "avx512f"  # oneDNN packs no weights in bfloat16 for a CPU without it, and vLLM keeps them as they are
REASON = "'Parameter' object has no attribute 'weight_loader'"
PATCH = "    layer.cpu_linear = torch.nn.functional.linear\n    return\n    dtype"


def break_it() -> None:
    from vllm.model_executor.layers import utils

    patched = inspect.getsource(utils.dispatch_cpu_unquantized_gemm)
    assert patched.count(PATCH) == 1
    names = dict(vars(utils))
    exec(patched.replace(PATCH, "    dtype"), names)  # noqa: S102  # without the patch
    utils.dispatch_cpu_unquantized_gemm.__code__ = names["dispatch_cpu_unquantized_gemm"].__code__


PROBE, run = sabotage("grpo-vllm-colocate", break_it)
