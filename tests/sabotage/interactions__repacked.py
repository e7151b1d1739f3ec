"""Does interactions notice 4-bit weights that an evaluation packs anew, as bitsandbytes does unpatched?"""

from __future__ import annotations

from tests.sabotage._break import sabotage, set_after_init

CAUGHT_BY = ("gradient_error",)
CPU = "avx512_bf16"  # bitsandbytes has the kernel for such a CPU only


def break_it() -> None:
    from bitsandbytes.nn import Linear4bit

    set_after_init(Linear4bit, support_avx512bf16_for_cpu=True)  # what the stack's patch turns off


PROBE, run = sabotage("interactions", break_it, rows={"adapter": "LoRA on 4-bit"})
