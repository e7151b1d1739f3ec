"""The environment of the probes on each device, whatever the caller's own says."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoke.run import environment

WORKSPACE, ORDER = "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_ORDER"


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cuda", {WORKSPACE: ":4096:8", ORDER: "PCI_BUS_ID"}), ("cpu", {WORKSPACE: None, ORDER: None})],
)
def test_only_on_a_gpu_cublas_has_a_fixed_workspace_and_gpus_the_order_of_the_driver(
    device: str, expected: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes that compare bit for bit need the one; `gpus.visible` counts device nodes, which needs the other."""
    monkeypatch.setenv(WORKSPACE, ":16:8")
    monkeypatch.setenv(ORDER, "FASTEST_FIRST")
    variables = environment.environment(device, tmp_path, tmp_path)
    assert {name: variables.get(name) for name in expected} == expected
