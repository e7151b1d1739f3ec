"""How long does docs/tutorial/own-run.md take? `python -m benchmarks.newcomer [--record]`

Types every command of the page in a clone of this project whose CPU image is certified, which the page asks for, with
an empty home folder. Needs a Docker engine, compose and git. The seconds of each section, as a person who types at once
would see them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from builder.base import project
from builder.pages import evidence
from builder.pages.newcomer import Newcomer

PAGE = Path("docs/tutorial/own-run.md")
STACK = "trl1.16-cpu"
COMMAND = "python -m benchmarks.newcomer"
AUTHOR = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--record", action="store_true", help=f"write docs/evidence/{Newcomer.FILE}.json")
    options = parser.parse_args(arguments)
    home = project.find()
    with tempfile.TemporaryDirectory() as folder:
        clone, person = Path(folder, "vetted"), Path(folder, "home")
        person.mkdir()
        run("git", "clone", "--quiet", str(home.root), str(clone), cwd=home.root)
        print("certifying the image that the page asks for", file=sys.stderr)
        # By the same person: what another one has built counts for nothing here.
        env = {**os.environ, **AUTHOR, "HOME": str(person), "PWD": str(clone)}
        run("./vetted", "certify", STACK, cwd=clone, env=env)
        rows = list(timed(clone, env))
        run("sh", "-c", "docker image rm --force $(docker images --quiet vetted/mine)", cwd=clone)
        measured = {"stack": STACK, "sections": rows, "seconds": sum(row["seconds"] for row in rows)}
        if options.record:
            document = {**evidence.head(f"{COMMAND} --record"), **measured}
            print(home.relative(evidence.store(home, Newcomer.FILE, document, Path(folder))), file=sys.stderr)
    print(f"{measured['seconds']} s")
    return 0


def run(*argv: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def timed(clone: Path, env: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Type the page, section by section, in one shell. Yields title, number of commands and seconds of each section."""
    with subprocess.Popen(
        ["bash", "-eu"], cwd=clone, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as shell:  # fmt: skip
        assert shell.stdin and shell.stdout
        for title, commands in sections((clone / PAGE).read_text(encoding="utf-8")):
            begin = time.monotonic()
            # A program that read from the shell's own input would swallow the commands behind it.
            shell.stdin.write(f"{{\n{commands}}} </dev/null\necho '# end of a section'\n")
            shell.stdin.flush()
            output = []
            for line in shell.stdout:
                if line == "# end of a section\n":
                    break
                output.append(line)
            else:
                sys.exit(f"{title}: the shell ended\n{''.join(output)}")
            yield {"title": title, "seconds": round(time.monotonic() - begin)}
            print(f"{title}: {round(time.monotonic() - begin)} s", file=sys.stderr)
        shell.stdin.close()


def sections(page: str) -> Iterator[tuple[str, str]]:
    """The sections with commands: their titles, and what is typed."""
    for section in page.split("\n## ")[1:]:
        title = section.splitlines()[0]
        if blocks := re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
            yield title, "".join(blocks)


if __name__ == "__main__":
    sys.exit(main())
