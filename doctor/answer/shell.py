"""The commands of an answer as the user's shell has them: `uv` where it is on PATH, else pip of the environment.

The rest of the doctor writes commands for uv. A user who copies one at night must not be told "command not found".
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from doctor.know.cuda import short

INDEX = "https://download.pytorch.org/whl/"  # of torch's wheels, which --torch-backend stands for


@dataclass
class Shell:
    """What the shell has. `uv`: how to call it, None where it cannot be. `python`: what stands for a Python's path."""

    uv: str | None = "uv"
    doctor: str = "vetted doctor"  # the command that runs this program again
    pip: bool = True  # has the Python of the environment a pip?

    def written(self, command: str, python: str | None = None, torch_cuda: str | None = None) -> str:
        """A command for uv as this shell runs it. `python`: the interpreter of the environment."""
        words = shlex.split(command)
        if words[:1] != ["uv"] or ">" in words:
            return command
        # A uv that is not on PATH is our own: it would change our packages where the command names no Python.
        ours = self.uv != "uv" and words[1:2] == ["pip"] and not (python or "--python" in words)
        if self.uv is not None and not ours:
            return command if self.uv == "uv" else f"{shlex.quote(self.uv)}{command[len('uv') :]}"
        if words[1:2] == ["venv"]:
            return _venv(_value(words, "--python") or "3", shlex.quote(words[-1]))
        return self._of_pip(words[2:], python, torch_cuda)

    def freeze(self, python: str, file: str) -> str:
        """The command that writes what an environment has to a file of pins."""
        ours = [*self._pip(python), "freeze"]
        return f"{shlex.join(ours if self.uv is None else [self.uv, 'pip', 'freeze', '--python', python])} > {file}"

    def _pip(self, python: str) -> list[str]:
        # Debian's pip and environments without one: the program that is beside this one serves any Python.
        return [python, "-m", "pip"] if self.pip else [sys.executable, "-m", "pip", "--python", python]

    def _of_pip(self, words: list[str], python: str | None, torch_cuda: str | None) -> str:
        """`uv pip install|uninstall|sync` for pip, which has other names for its options."""
        verb, rest = words[0], words[1:]
        interpreter = _value(rest, "--python") or python or "python3"
        if (folder := Path(interpreter)).suffix == "" and folder.name.startswith("venv-"):
            interpreter = f"{interpreter}/bin/python"
        options = {"install": ["install"], "uninstall": ["uninstall", "--yes"], "sync": ["install", "--no-deps"]}[verb]
        kept, skip = [], False
        for word in rest:
            if skip or word.startswith("--torch-backend="):
                skip = False
            elif word in ("--python", "--torch-backend", "--reinstall-package"):
                skip = True
            else:
                kept.append(word)
        if "--reinstall-package" in rest:
            options.append("--force-reinstall")
        if any(word.startswith("--torch-backend") for word in rest):
            named = [word.partition("=")[2] for word in rest if word.startswith("--torch-backend=")]
            stated = _value(rest, "--torch-backend") or next((name for name in named if name != "auto"), "")
            backend = stated or short(torch_cuda)
            options += ["--extra-index-url", INDEX + backend] if backend else []
        kept = [*kept[:-1], "--requirement", kept[-1]] if verb == "sync" else kept
        return shlex.join([*self._pip(interpreter), *options, *kept])


def _venv(version: str, folder: str) -> str:
    """Make an environment without uv; where the shell has no such Python, uv is what brings one."""
    if shutil.which(f"python{version}") is not None:
        return f"python{version} -m venv {folder}"
    # With --seed it has a pip, as the commands that follow expect.
    return f"python3 -m pip install uv && python3 -m uv venv --seed --python {version} {folder}"


def _value(words: list[str], option: str) -> str | None:
    return next((value for word, value in zip(words, words[1:]) if word == option), None)


def here(doctor: str, own: str = "", pip: bool = True) -> Shell:
    """The shell that runs this program. `own`: a folder on PATH that only this program has."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if not own or folder != own]
    if shutil.which("uv", path=os.pathsep.join(folders)):
        return Shell("uv", doctor, pip)
    bundled = shutil.which("uv", path=own) if own else None
    return Shell(bundled, doctor, pip)
