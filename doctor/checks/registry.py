"""All checks, in order: where two findings are otherwise equal, that of the earlier check stays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Callable

from doctor.case import Case
from doctor.checks import (
    absent,
    advisories,
    blamed,
    building,
    callers,
    changes,
    circular,
    compiled,
    cuda,
    demanded,
    leftovers,
    loader,
    measured,
    missing,
    models,
    overwritten,
    patched,
    remote,
    requires,
    resolution,
    signatures,
    threads,
    toolchain,
    undefined,
    words,
)
from doctor.finding import Finding

Check = Callable[[Case], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    measured.red_probes,
    advisories.known_combinations,
    requires.unmet_requirements,
    requires.unsupported_python,
    requires.vllm_outside_trl_range,
    cuda.old_driver,
    cuda.mixed_majors,
    cuda.missing_bitsandbytes_binary,
    cuda.other_runtime,
    compiled.foreign_symbols,
    compiled.foreign_family,
    compiled.broken_import,
    callers.missing_imports,
    loader.loader_errors,
    toolchain.missing_tools,
    building.failed_builds,
    leftovers.damaged_configurations,
    leftovers.silent_pythons,
    leftovers.interrupted_installs,
    leftovers.unread_files,
    leftovers.blank_configurations,
    resolution.conflicting_demands,
    resolution.other_python,
    demanded.demanded_ranges,
    demanded.advised_installs,
    demanded.absent_distributions,
    demanded.unequal_pairs,
    demanded.removed_names,
    demanded.unpublished_releases,
    demanded.demanded_minimums,
    blamed.blamed_releases,
    overwritten.overwritten_files,
    missing.missing_names,
    absent.absent_modules,
    circular.circular_imports,
    undefined.undefined_names,
    undefined.new_errors,
    remote.outdated_model_code,
    words.other_names,
    threads.reported_errors,
    patched.passes_through_unsloth,
    changes.solved_elsewhere,
    models.unknown_models,
    signatures.changed_signatures,
)
MOST = 500  # findings of one check: each is compared with every other


def findings(case: Case) -> Iterator[Finding]:
    """What every check has to say."""
    for check in CHECKS:
        yield from itertools.islice(check(case), MOST)
