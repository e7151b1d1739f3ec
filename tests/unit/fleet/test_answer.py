"""From the log of a pod to a statement: GPUs."""

from __future__ import annotations

import pytest

from builder.base import errors
from builder.fleet.answer import Machine


def test_the_hardware_is_that_of_the_pod() -> None:
    machine = Machine(cpu="EPYC", cores=8, gpus=[("NVIDIA H200", "570.86"), ("NVIDIA H200", "570.86")], kernel="6")
    assert machine.hardware("cuda").hardware_class == "2x NVIDIA H200, driver 570.86"
    assert machine.hardware("cpu").hardware_class == "EPYC, 8 cores"
    with pytest.raises(errors.VettedError, match="no GPU to certify on"):
        Machine(cpu="EPYC", cores=8, gpus=[], kernel="6").hardware("cuda")
