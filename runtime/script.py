"""TRL's own `trl grpo`, with a recorder beside it: one process of a run. `python -m runtime.script --config …`"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from runtime import parent, rewards


def main() -> None:
    parent.follow()
    sys.path.append(str(Path.cwd()))  # reward functions of one's own lie beside the config, and come after the stack
    if not shutil.which("gcc"):
        _no_compiled_collectives()
    import transformers
    from trl.scripts import grpo

    from runtime.record import Recorder

    # The script lets nobody add a callback, but every trainer takes this one.
    transformers.trainer.DEFAULT_PROGRESS_CALLBACK = Recorder
    _resume(transformers.Trainer)
    rewards.accept(grpo)
    parser = grpo.make_parser()
    grpo.main(*parser.parse_args_and_config())


def _resume(trainer: Any) -> None:
    """Up to TRL 0.17 the script leaves `--resume_from_checkpoint` out of its call."""
    train = trainer.train

    def resumed(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        return train(self, resume_from_checkpoint or self.args.resume_from_checkpoint, *args, **kwargs)

    trainer.train = resumed


def _no_compiled_collectives() -> None:
    """DeepSpeed's own collectives for CPUs are compiled at first use, by a compiler that is not there."""
    try:
        import deepspeed
    except ImportError:
        return
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


if __name__ == "__main__":
    main()
