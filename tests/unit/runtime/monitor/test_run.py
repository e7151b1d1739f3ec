"""What the monitor knows of a release of TRL from its trainer: without entropies some checks do not apply."""

from __future__ import annotations

from types import SimpleNamespace

from runtime.monitor import run


class OldGRPOTrainer:
    """TRL before 0.20."""

    model = SimpleNamespace(modules=list, config=None)
    args = SimpleNamespace(beta=0.1)

    def _get_per_token_logps(self) -> None: ...


class GRPOTrainer(OldGRPOTrainer):
    def _get_per_token_logps_and_entropies(self) -> None: ...


def test_without_entropies_the_sampler_is_not_compared_with_the_policy() -> None:
    assert "calibrated" not in run.absent(GRPOTrainer())
    assert run.absent(OldGRPOTrainer())["calibrated"] == "this TRL computes no entropies with its log-probabilities"
