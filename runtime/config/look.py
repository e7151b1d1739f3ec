"""All checks of a config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from runtime.check import Check
from runtime.config import batch, files, names, options, positions, rewards, services
from runtime.config.source import Config

GROUPS = ("grpo", "rloo")  # the scripts with groups of completions


def look(
    config: Config,
    script: str,
    site: Path,
    ranks: int,
    here: Path,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> list[Check]:
    """What is sure to fail, as checks of level "stop", and what may fail, as "advice". Empty when nothing is known.

    `script`: a trainer's name in `trl`, such as "grpo". `site`: the site-packages folder that will run. `ranks`: the
    processes of the run. `here`: the folder that relative paths start at. A release whose source has an unknown form is
    not checked for names and values.
    """
    try:
        known = options.read(site, script)
    except options.UnreadableError:
        known = {}
    checks = [*names.repeated(config)]
    if known:
        checks += names.unknown(config, known, {*options.launcher(site), "accelerate_config", "reward_funcs"})
        checks += names.values(config, known, options.compared(site, script))
    data = files.Data()
    checks += files.model(config, environ, here)
    checks += files.dataset(config, script, environ, here, data)
    checks += positions.look(config, known, environ, here)
    if script in rewards.SCRIPTS:
        call = rewards.Call(options.reward_arguments(site, script), frozenset(data.columns - {"prompt"}))
        registry = options.names_in(site, script, "reward_funcs_registry")
        checks += rewards.look(config, site, here, registry, call)
    if script in GROUPS and known:
        checks += batch.look(config, known, ranks)
    return checks + list(services.look(config, site, here, environ, root))
