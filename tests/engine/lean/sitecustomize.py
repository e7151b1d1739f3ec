"""On the PYTHONPATH of runs that need neither: vLLM and W&B are not there. TRL imports both whenever they are, whatever
its config says, and that takes longer than a test's training."""

import sys

for name in ("vllm", "wandb"):
    sys.modules[name] = None  # type: ignore[assignment]  # find_spec() finds nothing, and import raises
