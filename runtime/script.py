"""One process of a run: TRL's own `trl grpo` script with a recorder. `python -m runtime.script --config …`"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from runtime import parent, rewards


def main() -> None:
    parent.follow()
    sys.path.append(str(Path.cwd()))  # for reward functions next to the config; last, so that the stack wins
    if not shutil.which("gcc"):
        _no_compiled_collectives()
    import transformers
    from trl.scripts import grpo

    from runtime.record import Recorder

    # The script takes no callbacks, but every trainer adds this one.
    transformers.trainer.DEFAULT_PROGRESS_CALLBACK = Recorder
    _resume(transformers.Trainer)
    rewards.accept(grpo)
    parser = grpo.make_parser()
    grpo.main(*parser.parse_args_and_config())


def _resume(trainer: Any) -> None:
    """Make `--resume_from_checkpoint` work in TRL up to 0.17, whose script does not pass it to train()."""
    train = trainer.train

    def resumed(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        return train(self, resume_from_checkpoint or self.args.resume_from_checkpoint, *args, **kwargs)

    trainer.train = resumed


def _no_compiled_collectives() -> None:
    """Disable DeepSpeed's CPU collectives: they are compiled at first use, and the image has no compiler."""
    try:
        import deepspeed
    except ImportError:
        return
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


if __name__ == "__main__":
    main()
