"""The rows of the covering array: a healthy library trains each of them to its end, whatever the seed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.engine import hosted

# Each row in a folder of its own; one process for all, which imports the stack once.
PROGRAM = """
import json, sys
from pathlib import Path
from smoke.kit import adapter, factors, interaction, levels
from smoke.probe import Context

for number, (array, levels_, seed) in enumerate(json.loads(sys.argv[1])):
    row = {factor: choices[0] for factor, choices in getattr(levels, array).items()} | levels_
    chosen, _ = factors.supported(row, adapter.known_options(), adapter.losses())
    folder = Path(str(number)).absolute()
    folder.mkdir()
    numbers = interaction.run_row(Context("cpu", seed, folder), row, chosen)
    print("update error", numbers["update_error"][0])
"""


# The levels of a row that are not the first of their factors.
DIVERGED = {
    "ratio": "sequence",
    "accumulation": "2",
    "generation": "every second step",
    "iterations": "2",
    "clipping": "asymmetric",
    "scale": "none",
    "rewards": "none for some completions",
    "aggregation": "each first",
    "kl": "moving reference",
    "truncated": "masked",
    "sampling": "cold",
    "architecture": "llama",
    "heads": "4 on 2 of 24",
    "embedding": "tied",
    "checkpointing": "reentrant",
    "optimizer": "sgd",
    "evaluation": "at start and between",
    "prompts": "text",
    "padding": "to 16",
    "generations": "2",
}
CANCELLED = {
    "correction": "sequence_truncate",
    "generation": "every second step",
    "rewards": "none for some completions",
    "kl": "plain",
    "iterations": "2",
    "truncated": "masked",
    "sampling": "top-k",
    "adapter": "rank-stabilised",
    "checkpointing": "reentrant",
    "saving": "every step",
    "evaluation": "at start and between",
}


ROWS = (
    # Its gradients have no limit and are large: it ended in "probability tensor contains inf, nan".
    ("FACTORS", DIVERGED, 14),
    # In its third step the gradients cancel: what rounding left of them counted as an error of the update.
    ("SAMPLER_FACTORS", CANCELLED, 22),
)


def output_of(python: Path, folder: Path, program: str, *arguments: str) -> str:
    """What a program prints in the stack's environment."""
    done = subprocess.run(
        [python, "-c", program, *arguments], cwd=folder, env=hosted.environment(python, folder), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_rows_are_green_with_the_seeds_that_made_them_red(python: Path, tmp_path: Path) -> None:
    output = output_of(python, tmp_path, PROGRAM, json.dumps(ROWS))
    errors = [float(line.split()[-1]) for line in output.splitlines() if line.startswith("update error ")]
    assert len(errors) == len(ROWS) and max(errors) < 1e-3, errors


ERRORS = """
import torch
from smoke.kit import optimizer
from smoke.kit.measured import CANCELLED, ROUNDED

row = {"optimizer": "adamw", "adapter": "LoRA", "gradient norm": "free"}
torch.manual_seed(1)
gradients = {name: torch.randn(16, 8, dtype=torch.float64) * 0.01 for name in ("first", "second")}
update = optimizer.Follower(row).step(0, gradients)
rounding = max(ROUNDED, CANCELLED * optimizer.Follower(row).amplification(0))
for share in (0.0, 0.01):
    actual = {**update, "second": update["second"] * (1 + share)}
    print(optimizer.errors(actual, update, rounding=rounding)["second"])
"""


def test_an_update_that_is_wrong_by_a_hundredth_is_an_error(python: Path, tmp_path: Path) -> None:
    """What rounding may leave is allowed for, and nothing more."""
    output = output_of(python, tmp_path, ERRORS)
    right, wrong = map(float, output.split())
    assert right == 0
    assert wrong > 1e-3


NAMES = ("update_error", "gradient_error", "loss_error", "metric_error", "near_edge ", "steps ")
TIE = {
    "group": "on both ranks",
    "checkpointing": "not reentrant",
    "evaluation": "at start and between",
    "saving": "resumed",
    "entropy": "top quarter",
}
RANKS = """
import json, sys
from pathlib import Path
from smoke.kit import levels, rows
from smoke.probe import Context

row = {factor: choices[0] for factor, choices in levels.RANK_FACTORS.items()} | json.loads(sys.argv[1])
chosen = {"row 3": row}
numbers = ("update_error", "gradient_error", "loss_error", "metric_error")
for reading in rows.run(Context("cpu", 3, Path.cwd()), chosen, numbers, ("near_edge", "steps"), ranks=2):
    print(reading.name, reading.value)
"""


def test_a_tie_that_ranks_round_differently_is_left_out_with_what_follows_from_it(python: Path, tmp_path: Path) -> None:
    """With seed 3, four tokens had the entropy of the threshold, and then Adam remembered what the oracle did not."""
    output = output_of(python, tmp_path, RANKS, json.dumps(TIE))
    lines = (line.split() for line in output.splitlines() if line.startswith(NAMES))
    numbers = {name: float(value) for name, value in lines}
    # A step is left out only where this processor's rounding puts the tie on different sides.
    assert numbers.pop("near_edge") in (0, 1) and numbers.pop("steps") == 2
    assert numbers and max(numbers.values()) < 1e-3, numbers


THRESHOLD = """
import torch
from smoke.kit.entropy import top_threshold

for entropies in ([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 4.0, 4.0, 5.0], [1.0, 2.0, 4.0, 4.0], [7.0]):
    print(*top_threshold(torch.tensor(entropies, dtype=torch.float64)))
"""


def test_rounding_decides_where_several_tokens_are_at_the_threshold_of_entropy(python: Path, tmp_path: Path) -> None:
    """With seed 3, four tokens of equal entropy were, and ranks that padded them differently kept some of them."""
    output = output_of(python, tmp_path, THRESHOLD)
    values = [tuple(map(float, line.split())) for line in output.splitlines()]
    assert values == [(4.0, 1.0), (4.0, 0.0), (4.0, 0.0), (7.0, float("inf"))]


METHOD = """
from pathlib import Path
from peft.tuners.tuners_utils import BaseTuner
from smoke.kit import adapter, factors, interaction, levels
from smoke.probe import Context

BaseTuner.forward = lambda self, *args, **kwargs: self.model.forward(*args, **kwargs)
row = {factor: choices[0] for factor, choices in levels.FACTORS.items()} | {"adapter": "LoRA"}
chosen, _ = factors.supported(row, adapter.known_options(), adapter.losses())
numbers = interaction.run_row(Context("cpu", 1, Path.cwd()), row, chosen)
print(numbers["trained_wrong"][0], numbers["gradient_error"][0])
"""


def test_rows_are_recorded_where_peft_calls_forward_as_a_method(python: Path, tmp_path: Path) -> None:
    """PEFT does up to 0.19, and no hook of the model inside runs: no row was seen, of any that was trained on."""
    output = output_of(python, tmp_path, METHOD)
    trained_wrong, gradient_error = map(float, output.splitlines()[-1].split())
    assert trained_wrong == 0
    assert gradient_error < 1e-3
