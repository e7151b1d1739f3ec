"""The Triton kernels that TRL's GRPO loss uses on a GPU, interpreted on the CPU, against float64."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.gpu.conftest import CudaStack

# Rounding in float32: 6e-8 to 6e-6 was seen. The last block of the vocabulary, if it were lost, is a fifth of all.
ROUNDING = 1e-4


def test_log_probabilities_entropy_and_gradients_are_those_of_float64(cuda_stack: CudaStack, tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    python = cuda_stack.environment / "bin" / "python"
    done = subprocess.run(
        [str(python), "-W", "ignore", str(Path(__file__).with_name("interpreted.py"))],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    assert {name: len(values) for name, values in measured.items()} == {"chunked": 4, "whole": 3}
    assert max(map(max, measured.values())) < ROUNDING, measured
