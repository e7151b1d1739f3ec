"""The environment of a run, and what of it is recorded."""

from __future__ import annotations

import os

from runtime.train import environment


def test_what_changes_a_run_is_recorded_without_secrets_and_places_of_the_machine() -> None:
    environ = {
        "HF_HOME": "/x", "HF_TOKEN": "s", "WANDB_API_KEY": "s", "NCCL_DEBUG": "INFO", "PATH": "/bin",
        "TOKENIZERS_PARALLELISM": "true", "CUDA_VISIBLE_DEVICES": "1", "LD_PRELOAD": "/x.so",
        "VETTED_OUTPUT": "/runs/1",
    }  # fmt: skip
    assert environment.recorded(environ) == {"HF_HOME": "/x", "NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "true"}


def test_what_the_user_set_wins_over_a_default() -> None:
    before = dict(os.environ)
    environ = environment.complete({"HF_HOME": "/x", "PATH": "/bin"})
    assert (environ["HF_HOME"], environ["PATH"], environ["DO_NOT_TRACK"]) == ("/x", "/bin", "1")
    assert dict(os.environ) == before
