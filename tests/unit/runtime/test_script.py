"""What one process of a run prepares."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from runtime import script

# As bitsandbytes 0.50.2 logs it, in backends/cpu/ops.py.
MESSAGE = (
    "Failed to load CPU gemm_4bit_forward from kernels-community: %s. Please make sure you already "
    "`pip install kernels` and the kernels >= 0.11.1"
)


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
    monkeypatch.setattr(logger, "filters", [])
    return logger


def test_the_advice_to_install_kernels_is_not_shown(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    logger.warning(MESSAGE, OSError("offline"))
    assert "pip install kernels" in caplog.text
    caplog.clear()
    script.quiet()
    logger.warning(MESSAGE, OSError("offline"))
    assert caplog.text == ""


def test_every_other_warning_of_that_logger_is_shown(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    script.quiet()
    logger.warning("no kernel for %s", "float16")
    logging.getLogger("bitsandbytes").warning("Failed to load CPU gemm_4bit_forward from kernels-community")
    assert [record.getMessage() for record in caplog.records] == [
        "no kernel for float16",
        "Failed to load CPU gemm_4bit_forward from kernels-community",
    ]


def test_a_kernel_that_no_lock_has_is_not_fetched_when_bitsandbytes_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a network it would be: bytes of the Hub that nobody tested, in a certified image."""
    fetched: list[str] = []
    monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace(get_kernel=lambda name, **_: fetched.append(name)))
    script.only_locked()
    kernels = sys.modules["kernels"]

    with pytest.raises(OSError, match="in no lock"):
        kernels.get_kernel("kernels-community/quantization-bitsandbytes", version=1)
    kernels.get_kernel("kernels-community/flash-attn2", version=1)  # asked for by name, in a config
    assert fetched == ["kernels-community/flash-attn2"]


def test_a_stack_without_kernels_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kernels", None)
    script.only_locked()
