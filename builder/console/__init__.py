"""What a person sees: calm progress on stderr while work is under way, the answer on stdout."""

from builder.console.bisection import BisectionProgress, tried_table
from builder.console.failures import reasons, surprises
from builder.console.progress import Counting, Training, Working, spinner
from builder.console.tables import bound, controls_table, number, plain, results_table
from builder.console.terminal import Console, err, note, out, print_json, verbatim

__all__ = [
    "BisectionProgress", "Console", "Counting", "Training", "Working", "bound", "controls_table", "err", "note",
    "number", "out", "plain", "print_json", "reasons", "results_table", "spinner", "surprises",
    "tried_table", "verbatim",
]  # fmt: skip
