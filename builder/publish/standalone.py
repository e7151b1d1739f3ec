"""compose.yaml in a repository of the user's own: it stands alone, names the image by its digest, and is committed.

It is this project's compose files in one stream of documents, which Compose merges as it merges files (compose-go's
pull request 451, of 2023). What .env says in this project is written into it; .env beside it has only what differs
between machines. In vetted/ lie the verdict, the certificates and the public keys. Without .env it works as well, so a
clone of that repository needs nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process, reading
from builder.base.project import Project, sha256, write
from builder.base.text import word
from builder.certify import verdict as verdicts
from builder.certify.certificate import Statement
from builder.lock.lockfile import Lock
from builder.publish import dotenv, place
from builder.publish.dotenv import Overlays
from builder.publish.reference import Repository, parse_reference

FILE, FOLDER, CACHE = "compose.yaml", place.RECORD, place.CACHE
OTHERS = ("compose.yml", "docker-compose.yaml", "docker-compose.yml")  # names that Compose looks for after FILE
FIRST = re.compile(r"# Written by `vetted use`: (\S+) (\S+) (sha256:[0-9a-f]{64})\n")  # stack, compose files, the rest
RESULTS = """\
# Results stay here.
*
!.gitignore
"""
DOWNLOADS = """\
# Downloads stay here. The folders are committed, empty, so that the user of a clone owns them.
*
!.gitignore
!/hub/
!/datasets/
"""
IGNORES = {"runs": RESULTS, CACHE: DOWNLOADS, f"{CACHE}/hub": "", f"{CACHE}/datasets": ""}

HEAD = """\
# Training in an image of Vetted, proven to train. Changes go into compose.override.yaml, which Compose reads too.
#
#   docker compose run --rm train                        a small built-in task, offline, in about a minute
#   docker compose run --rm train --config my.yaml       a `trl grpo` config; my.yaml lies where you are
#   docker compose run --rm train my_train.py            your own script
#   docker compose run --rm train --resume               go on with the last run, after Ctrl-C or a crash
#   docker compose run --rm shell                        the stack's Python, in your folder
#   docker compose up tensorboard                        http://127.0.0.1:6006
#   VETTED_WORK=notebooks docker compose up notebook     JupyterLab, if the image has it; it may write notebooks/
#
# A container sees the folder where you are, also one below this file, as /here; VETTED_WORK=. shows it this file's.
# Results are in runs/ beside this file. .env beside it, not committed, is for one machine: VETTED_USER=uid:gid if you
# are not 1000:1000; VETTED_CACHE, another cache of the Hub than {cache}; VETTED_MEMORY and VETTED_PIDS.
# Docker Compose 2.24 or newer.
"""
TOKENS = """\
# Tokens are files, once for each machine:
#   mkdir -p ~/.config/vetted && touch ~/.config/vetted/hf_token ~/.config/vetted/wandb_api_key
"""
LOCAL = """\
#
# The image was built on one machine and is in no registry. For a clone elsewhere, vetted publish {stack}, and then:
#   {command}
"""
SIGNED = """\
#
# Is the image signed, and what was it proven for? Compare the key with its owner's first. The second command, in a
# clone of Vetted, judges certificates, dates and advisories too.
#   image={image}
#   cosign verify --key {key} --insecure-ignore-tlog $image
#   vetted verify $image --key {key}
# Another image, in a clone of Vetted:
#   {command}
"""


@dataclass(frozen=True)
class Source:
    """Where the image is: in a registry, or only here, in Docker. `keys`: those that it was verified with."""

    image: str
    repository: Repository | None = None
    keys: Sequence[Path] = ()


@dataclass(frozen=True)
class Written:
    """What a compose.yaml of ours was made from. `files`: the compose files, as COMPOSE_FILE names them."""

    stack: str
    files: str
    source: Source


def read(folder: Path) -> Written | None:
    """What the folder's compose.yaml was made from; None without one.

    Raises StorageError when Compose would read a file there that is not ours, or that somebody changed, and when
    another file would be replaced that is not ours.
    """
    path = folder / FILE
    elsewhere = f"choose a folder of its own for training: --into {word(folder / 'training')}"
    for name in OTHERS:
        if (folder / name).exists():
            raise errors.StorageError(
                f"{folder / name} is there, and Docker Compose would read {FILE} in its place", next_step=elsewhere
            )
    place.refuse_other(folder, elsewhere)
    if not os.path.lexists(path):
        return None
    if path.is_symlink():
        raise errors.StorageError(f"{path} is a link, so it stays as it is", next_step=elsewhere)
    text = reading.text(path, str(path))
    first = FIRST.match(text)
    if first is None:
        raise errors.StorageError(f"{path} is not Vetted's, so it stays as it is", next_step=elsewhere)
    if sha256(text[first.end() :].encode()) != first[3]:
        raise errors.StorageError(
            f"{path} was changed after `vetted use` wrote it, so it stays as it is",
            cause="a service was added or changed in it",
            next_step=f"move the changes to compose.override.yaml, remove {word(path)}, and run this again",
        )
    match = re.search(r"^  image: (\S+)$", text, re.MULTILINE)
    assert match is not None
    try:
        repository = parse_reference(match[1], insecure=False).repository
    except ValueError:  # a name without a host: only this machine's Docker has it
        repository = None
    return Written(first[1], first[2], Source(match[1], repository, place.keys(folder / FOLDER)))


def put(
    project: Project, lock: Lock, source: Source, statements: Iterable[Statement] | None, overlays: Overlays,
    folder: Path, scratch: Path,
) -> bool:  # fmt: skip
    """Write the files; returns whether compose.yaml or .env changed. Raises StorageError as `read`.

    `statements`: the certificates of the image; None leaves those that are there, with their keys.
    """
    earlier = read(folder)
    before = f"{dotenv.FILES}={earlier.files}" if earlier else ""
    files = dotenv.files(before, lock.stack.device, overlays).split(":")
    rest = document(project, lock.name, source, files)
    text = f"# Written by `vetted use`: {lock.name} {':'.join(files)} {sha256(rest.encode())}\n{rest}"
    changed = not (folder / FILE).exists() or (folder / FILE).read_text(encoding="utf-8") != text
    if statements is not None:
        verdicts.write(project, lock, source.image.rpartition("@")[2], statements, folder / FOLDER, scratch)
        keys = {name: key.read_bytes() for name, key in zip(_names(source.keys), source.keys, strict=True)}
        for path in {*place.keys(folder / FOLDER)} - {folder / FOLDER / name for name in keys}:
            path.unlink()
        for name, content in keys.items():
            write(folder / FOLDER / name, content, scratch)
    for name, ignored in IGNORES.items():
        if not os.path.lexists(folder / name / ".gitignore"):
            write(folder / name / ".gitignore", ignored, scratch)
    changed |= dotenv.machine(Project(folder), folder / CACHE, network=dotenv.NETWORK in files, scratch=scratch)
    write(folder / FILE, text, scratch)
    return changed


def document(project: Project, stack: str, source: Source, files: Sequence[str]) -> str:
    """compose.yaml without its first line."""
    served = dotenv.SERVER in files
    documents = []
    for name in files:
        text = reading.text(project.root / name, name)
        text = re.sub(r"\A(?:#.*\n|\n)+", "", text)  # it says how this project is used
        for service in ("smoke", *(() if served else ("vllm",))):  # the suite's files stay in this project
            text = re.sub(rf"(?m)(?:^  #.*\n)*^  {service}:\n(?:    .*\n|\n)+", "", text)
        documents.append(text.rstrip("\n") + "\n")
    text = "---\n".join(documents)
    for old, new in (
        (f"${{{dotenv.IMAGE}:?no image is chosen yet. Next, ./vetted use}}", source.image),
        (f"${{{dotenv.CERTIFICATES}:-./.vetted/judged/${{{dotenv.STACK}:-trl1.16-cpu}}}}", f"./{FOLDER}"),
        (f"${{{dotenv.STACK}:-}}", f'{stack}\n      VETTED_INTO: "1"   # commands of Vetted are typed elsewhere'),
        (f"${{{dotenv.CACHE}:-./.vetted/huggingface}}", f"${{{dotenv.CACHE}:-./{CACHE}}}"),
        # Nobody chose a limit for a machine without .env: 0 is none.
        (f"${{{dotenv.MEMORY}:-16g}}", f"${{{dotenv.MEMORY}:-0}}"),
        *([("    profiles: [server]\n", "")] if served else []),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return _head(stack, source, files) + "\n" + text


def _head(stack: str, source: Source, files: Sequence[str]) -> str:
    words = ["vetted", "use", stack]
    words += ["--registry", str(source.repository), "--key", "cosign.pub"] if source.repository else []
    words += [f"--{name}" for name, file in (("network", dotenv.NETWORK), ("server", dotenv.SERVER)) if file in files]
    published = ["--registry", "HOST/PATH", "--key", "cosign.pub"] if not source.repository else []
    command = shlex.join([*words, *published, "--into", "."])
    key = f"{FOLDER}/{_names(source.keys)[0]}" if source.keys else "cosign.pub"
    origin = (SIGNED if source.repository else LOCAL).format(image=source.image, stack=stack, command=command, key=key)
    return HEAD.format(cache=CACHE) + (TOKENS if dotenv.NETWORK in files else "") + origin


def _names(keys: Sequence[Path]) -> list[str]:
    """The names of public keys in FOLDER."""
    return ["cosign.pub", *(f"cosign-{number}.pub" for number in range(2, len(keys) + 1))][: len(keys)]


def committed_by_accident(folder: Path) -> bool:
    """Whether git would commit .env, which is for one machine."""
    try:
        return process.run(["git", "-C", str(folder), "check-ignore", "--quiet", ".env"], timeout=20).returncode == 1
    except errors.VettedError:
        return False
