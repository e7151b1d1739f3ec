"""A namespace of a Kubernetes cluster, through the official client: the few requests that a fleet makes.

The client has the kubeconfig, the login and the addresses. Answers are read as the JSON that they are: its models
refuse what another version of Kubernetes adds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from builder.base import errors
from builder.base.text import word
from builder.fleet.manifest import SELECTOR

PATIENCE = 30  # seconds for one request
OLDEST = (1, 26)  # pod failure policies are on by default
BUSY = 429
LARGEST = 64 << 20  # bytes of an answer; a run of the whole suite prints a few hundred thousand


class RefusedError(errors.VettedError):
    """The API server has answered, and the answer is no. `status`: HTTP's."""

    def __init__(self, status: int, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what, cause=cause, next_step=next_step)
        self.status = status


class Api:
    """The cluster that the kubeconfig names, or the one that this runs in. `namespace`: "" for the kubeconfig's."""

    def __init__(self, namespace: str = "") -> None:
        try:
            import kubernetes
            import urllib3
        except ImportError as error:
            raise errors.MissingToolError(
                "the Python package kubernetes is not installed",
                cause="only this command needs it",
                next_step="pip install 'vetted[kubernetes]', or ./vetted of a clone, which has it",
            ) from error
        self._silent, self._api_error = urllib3.exceptions.HTTPError, kubernetes.client.ApiException
        configuration = kubernetes.client.Configuration()
        own = _configure(kubernetes.config, configuration)
        self.namespace = namespace or own
        configuration.retries = False  # what is asked once more is asked by the caller, who says so
        client = kubernetes.client.ApiClient(configuration)
        self._core, self._batch = kubernetes.client.CoreV1Api(client), kubernetes.client.BatchV1Api(client)
        self._code = kubernetes.client.VersionApi(client).get_code
        self.version = ""

    def require_version(self) -> None:
        """Learn the server's version. Raises MissingToolError for one that is too old."""
        version = self._ask("asking for its version", self._code)
        with readable():
            self.version = str(version["gitVersion"])
            numbers = tuple(int("".join(filter(str.isdigit, version[part])) or 0) for part in ("major", "minor"))
        if numbers < OLDEST:
            raise errors.MissingToolError(
                f"the cluster runs Kubernetes {self.version}; a fleet needs {OLDEST[0]}.{OLDEST[1]}",
                cause="a pod that loses its node would count as a failed suite there",
                next_step="./vetted fleet --on slurm, or a newer cluster",
            )

    # --- create and delete ---

    def create_config_map(self, body: dict[str, Any]) -> None:
        """Raises VettedError when one of this name has another content."""
        name = body["metadata"]["name"]
        try:
            self._ask("creating a ConfigMap", self._core.create_namespaced_config_map, self.namespace, body)
        except RefusedError as error:
            if error.status != 409:
                raise
            there = self._ask("reading a ConfigMap", self._core.read_namespaced_config_map, name, self.namespace)
            if not isinstance(there, dict) or there.get("data") != body["data"]:
                raise errors.VettedError(
                    f"the ConfigMap {name} is there, and is not the suite",
                    cause="somebody has changed it",
                    next_step=f"kubectl delete job,configmap {word(name)} --namespace {word(self.namespace)}",
                ) from error

    def create_job(self, body: dict[str, Any]) -> None:
        """A Job of this name that is there already stays."""
        try:
            self._ask("creating a Job", self._batch.create_namespaced_job, self.namespace, body)
        except RefusedError as error:
            if error.status != 409:
                raise

    def delete(self, name: str) -> None:
        """Remove the Job of a unit, its pods and its ConfigMap, if they are there."""
        for what, function in (
            ("deleting a Job", self._batch.delete_namespaced_job),
            ("deleting a ConfigMap", self._core.delete_namespaced_config_map),
        ):
            try:
                self._ask(what, function, name, self.namespace, propagation_policy="Background")
            except RefusedError as error:
                if error.status != 404:
                    raise

    # --- read ---

    def jobs(self) -> dict[str, Any]:
        """Every Job of a fleet in the namespace, by its name."""
        listed = self._ask("listing Jobs", self._batch.list_namespaced_job, self.namespace, label_selector=SELECTOR)
        with readable():
            return {job["metadata"]["name"]: job for job in listed["items"]}

    def pods(self) -> list[Any]:
        """Every pod of a fleet in the namespace."""
        listed = self._ask("listing pods", self._core.list_namespaced_pod, self.namespace, label_selector=SELECTOR)
        with readable():
            return list(listed["items"])

    def events(self, job: Any) -> list[Any]:
        """What the cluster has to say about a Job; nothing where this user may not read events."""
        selector = f"involvedObject.uid={job['metadata']['uid']}"
        function = self._core.list_namespaced_event
        try:
            listed = self._ask("listing events", function, self.namespace, field_selector=selector)
        except RefusedError:
            return []
        with readable():
            return list(listed["items"])

    def log(self, pod: str, container: str) -> bytes:
        """What a container of a pod has printed, byte for byte."""
        read = self._core.read_namespaced_pod_log
        return self._bytes("reading the log of a pod", read, pod, self.namespace, container=container)

    def _ask(self, what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with readable():
            return json.loads(self._bytes(what, function, *arguments, **options))

    def _bytes(self, what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
        try:
            response = function(*arguments, _request_timeout=PATIENCE, _preload_content=False, **options)
            try:
                return bytes(response.read(LARGEST))
            finally:
                response.release_conn()
        except self._api_error as error:
            raise _refusal(what, self.namespace, error) from error
        except self._silent as error:
            raise _silence(what, error) from error


@contextmanager
def readable() -> Iterator[None]:
    """Raises VettedError for an answer that Kubernetes would not give."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise errors.VettedError(
            f"something answers that is no API server of Kubernetes: {type(error).__name__}: {error}",
            cause="a proxy or a login page in its place",
            next_step="kubectl cluster-info; kubectl get jobs --output json",
        ) from error


def _configure(config: Any, configuration: Any) -> str:
    """Fill in the configuration; returns the namespace that it names. Raises BadInputError."""
    file = os.environ.get("KUBECONFIG") or None
    try:
        config.load_kube_config(config_file=file, client_configuration=configuration)
        context = config.list_kube_config_contexts(config_file=file)[1]
        return str(context["context"].get("namespace") or "default")
    except (config.ConfigException, yaml.YAMLError, TypeError, KeyError) as outside:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            raise errors.BadInputError(
                f"no cluster is configured: {outside}",
                cause="there is no kubeconfig, or it names no current context",
                next_step="export KUBECONFIG=…; kubectl cluster-info; to write the manifests alone: --manifest FILE",
            ) from outside
        return "default"


def _silence(what: str, error: Exception) -> errors.NetworkError:
    return errors.NetworkError(
        f"the API server does not answer ({what})\n{error}",
        cause="a VPN that is down, a cluster that has moved, or HTTPS_PROXY without NO_PROXY",
        next_step="kubectl cluster-info; then run this again: Jobs that are there go on, and are taken up",
    )


def _refusal(what: str, namespace: str, error: Any) -> errors.VettedError:
    """The error for what the API server said, which is JSON from it, and anything from a proxy before it."""
    status = int(error.status or 0)
    try:
        message = str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        message = str(error.reason or "")
    text = f"the API server refuses ({what}, HTTP status {status}): {message}"
    if status == BUSY or status >= 500:
        return errors.NetworkError(
            f"the API server is busy or ill ({what}, HTTP status {status})\n{message}",
            cause="it restarts, or is overloaded",
            next_step="run this again: Jobs that are there go on, and are taken up",
        )
    cause, next_step = {
        401: ("the login of the kubeconfig has expired", "kubectl auth whoami"),
        403: (
            "a role without the right, or a quota",
            f"kubectl auth can-i --list --namespace {namespace}; the how-to has the Role",
        ),
        404: ("the namespace does not exist", f"kubectl create namespace {namespace}, or --namespace"),
        422: (
            "an option that Kubernetes does not take",
            "vetted fleet … --manifest - | kubectl apply --server-side --filename -",
        ),
    }.get(status, ("", ""))
    return RefusedError(status, text, cause=cause, next_step=next_step)
