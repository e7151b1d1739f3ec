"""What the monitor knows of a run from its trainer, and which checks do not apply to it."""

from __future__ import annotations

from types import SimpleNamespace

from runtime.monitor import run


class OldGRPOTrainer:
    """TRL before 0.20."""

    model = SimpleNamespace(modules=list, config=None, parameters=list)
    args = SimpleNamespace(beta=0.1)
    accelerator = SimpleNamespace(num_processes=1, distributed_type="NO")

    def _get_per_token_logps(self) -> None: ...


class GRPOTrainer(OldGRPOTrainer):
    def _get_per_token_logps_and_entropies(self) -> None: ...


def test_without_entropies_the_sampler_is_not_compared_with_the_policy() -> None:
    assert "calibrated" not in run.absent(GRPOTrainer())
    assert run.absent(OldGRPOTrainer())["calibrated"] == "this TRL computes no entropies with its log-probabilities"


def several(kind: str, *weights: object) -> GRPOTrainer:
    """A trainer of two processes."""
    trainer = GRPOTrainer()
    trainer.accelerator = SimpleNamespace(num_processes=2, distributed_type=kind)
    trainer.model = SimpleNamespace(modules=list, config=None, parameters=lambda: iter(weights))
    return trainer


def test_ranks_are_compared_where_each_has_all_weights() -> None:
    assert run.absent(GRPOTrainer())["replicas"] == "there is one process"
    assert "replicas" not in run.absent(several("MULTI_GPU", SimpleNamespace()))
    part = SimpleNamespace(ds_id=1), SimpleNamespace(to_local=None)  # ZeRO-3, tensor parallelism
    for sharded in (several("FSDP"), *(several("MULTI_GPU", SimpleNamespace(), weight) for weight in part)):
        assert run.absent(sharded)["replicas"] == "the weights are sharded over processes"
