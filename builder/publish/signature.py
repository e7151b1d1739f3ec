"""The image's own signature, in cosign's format: for `cosign verify` and admission controllers.

It proves that somebody with the key published these bytes. What they were proven to do is in the attached statements.
"""

from __future__ import annotations

from pathlib import Path

from builder.base import errors, process, strictjson
from builder.image import oci
from builder.publish import refusal, registry, signing, timestamp
from builder.publish.reference import Repository

CONFIG = "application/vnd.oci.image.config.v1+json"
MOST = 100  # signatures that others may have added


def tag(image: str) -> str:
    """Where cosign looks for the signatures of an image."""
    return image.replace(":", "-") + ".sig"


def add(
    repository: Repository, image: str, key: str, public: Path, scratch: Path, timestamp_server: str | None = None
) -> bool:
    """Sign an image in a registry, unless the key signed it already; returns whether it was signed now.

    With a timestamp server, a signature without a timestamp does not count: one with a timestamp is added.
    Raises NetworkError, BadInputError.
    """
    env, more = (
        {**_login(scratch), **signing.key_environment(key)},
        ["--allow-http-registry"] if repository.plain else [],
    )
    check = ["cosign", "verify", "--insecure-ignore-tlog", f"--key={public}", *more, f"{repository}@{image}"]
    verified = process.run(check, env=env)
    if verified.returncode == 0 and (timestamp_server is None or _stamped(repository, image, verified)):
        return False
    if timestamp_server is not None:
        more.append(f"--timestamp-server-url={timestamp_server}")
    argv = ["cosign", "sign", "--yes", "--tlog-upload=false", f"--key={key}", *more, f"{repository}@{image}"]
    result = process.run(argv, env=env)
    if result.returncode != 0 and _cleared(repository, image, scratch):
        result = process.run(argv, env=env)
    if timestamp_server and result.returncode != 0 and (failed := timestamp.explain(timestamp_server, result.output)):
        raise failed
    if "could not parse reference" in result.output:
        raise errors.BadInputError(
            f"cosign cannot sign in {repository}; no tag was moved",
            cause="cosign wants names of two characters at least",
            next_step="publish to a repository with a longer name",
        )
    if result.returncode != 0:
        raise refusal.explain(repository, result.output)
    if timestamp_server is not None and not _stamped(repository, image, process.run(check, env=env)):
        raise timestamp.no_timestamp(timestamp_server, "it sent a timestamp of something else")
    return True


def _stamped(repository: Repository, image: str, verified: process.Result) -> bool:
    return timestamp.of(registry.manifest(repository, tag(image)), verified.stdout)


def _login(scratch: Path) -> dict[str, str]:
    """The variable that lets cosign read the same login as oras."""
    login = registry.login()
    if login is None:
        return {}
    folder = scratch / "login"
    folder.mkdir(exist_ok=True)
    target = folder / "config.json"
    target.unlink(missing_ok=True)
    target.symlink_to(Path(login).absolute())
    return {"DOCKER_CONFIG": str(folder)}


def _cleared(repository: Repository, image: str, scratch: Path) -> bool:
    """Replace a list of signatures that cosign cannot add to by an empty one; returns whether it did.

    So nobody who may push can prevent a signature.
    """
    content = registry.manifest(repository, tag(image))
    if content is None or _is_list(content):
        return False
    layout = scratch / "no-signatures"
    oci.begin(layout)
    config = oci.add(layout, b'{"architecture":"","os":"","rootfs":{"type":"layers","diff_ids":[]}}', CONFIG)
    empty = b'{"schemaVersion":2,"mediaType":"%b","config":{"mediaType":"%b","digest":"%b","size":%d},"layers":[]}'
    manifest = empty % (oci.MANIFEST.encode(), CONFIG.encode(), config["digest"].encode(), config["size"])
    descriptor = oci.add(layout, manifest, oci.MANIFEST)
    oci.finish(layout, [descriptor])
    registry.push(repository, layout, descriptor["digest"], tag(image))
    return True


def _is_list(content: bytes) -> bool:
    try:
        layers = strictjson.load_object(content).get("layers")
    except ValueError:
        return False
    return isinstance(layers, list) and len(layers) <= MOST
