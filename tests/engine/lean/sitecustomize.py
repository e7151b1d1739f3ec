"""On the PYTHONPATH of runs that need none of them: vLLM, W&B and bitsandbytes are not there. TRL and PEFT import them
whenever they are, whatever the config says, and that takes longer than a test's training."""

import sys

for name in ("vllm", "wandb", "bitsandbytes"):
    sys.modules[name] = None  # type: ignore[assignment]  # find_spec() finds nothing, and import raises
