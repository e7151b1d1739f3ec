"""What the monitor knows of a run from its trainer, and which checks do not apply to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime.monitor import run
from runtime.monitor.observer import Observer


class OldGRPOTrainer:
    """TRL before 0.20."""

    model: Any = SimpleNamespace(modules=list, config=None, parameters=list)
    args = SimpleNamespace(beta=0.1)
    accelerator: Any = SimpleNamespace(num_processes=1, distributed_type="NO")

    def _get_per_token_logps(self) -> None: ...


class GRPOTrainer(OldGRPOTrainer):
    def _get_per_token_logps_and_entropies(self) -> None: ...


def test_without_entropies_the_sampler_is_not_compared_with_the_policy() -> None:
    assert "calibrated" not in run.absent(GRPOTrainer())
    assert run.absent(OldGRPOTrainer())["calibrated"] == "this TRL computes no entropies with its log-probabilities"


def several(kind: str = "MULTI_GPU", *weights: object, config: dict[str, Any] | None = None) -> GRPOTrainer:
    """A trainer of two processes."""
    trainer = GRPOTrainer()
    state = SimpleNamespace(deepspeed_plugin=SimpleNamespace(deepspeed_config=config))
    trainer.accelerator = SimpleNamespace(num_processes=2, distributed_type=kind, state=state)
    trainer.model = SimpleNamespace(modules=list, config=None, parameters=lambda: iter(weights))
    return trainer


def test_ranks_are_compared_where_there_are_several() -> None:
    assert run.absent(GRPOTrainer())["replicas"] == "there is one process"
    assert "replicas" not in run.absent(several())


@pytest.mark.parametrize(
    "trainer",
    [
        several("FSDP"), several("MULTI_GPU", SimpleNamespace(), SimpleNamespace(ds_id=1)),
        several("MULTI_GPU", SimpleNamespace(to_local=None)),
        several("DEEPSPEED", config={"tensor_parallel": {"autotp_size": 2}}),
    ],
    ids=["fsdp", "zero3", "tensor-parallel", "autotp"],
)  # fmt: skip
def test_shards_are_not_compared_though_deepspeed_makes_them_only_when_training_begins(trainer: GRPOTrainer) -> None:
    observer = object.__new__(Observer)  # as it was made before
    observer.trainer, observer.absent = trainer, {"engine": "vLLM is a server"}
    observer.prepared()
    assert observer.absent == {"engine": "vLLM is a server", "replicas": run.SHARDED}


def test_whole_weights_are_compared() -> None:
    observer = object.__new__(Observer)
    observer.trainer, observer.absent = several("DEEPSPEED", SimpleNamespace(), config={"zero_optimization": {}}), {}
    observer.prepared()
    assert observer.absent == {}
