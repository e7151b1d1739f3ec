"""What a refusal is called. What registries really do is in tests/registry."""

from __future__ import annotations

import pytest

from builder.base import errors
from builder.publish import refusal
from builder.publish.reference import parse_repository


# What oras 1.2.0 printed, of registries that were made to fail.
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('Error: Head "http://h/v2/": dial tcp 127.0.0.1:1: connect: connection refused', "does not answer"),
        ("Error: lookup nohost.invalid on 10.0.0.1:53: no such host", "does not answer"),
        (
            "Error response from registry: unknown error: map[DriverName:filesystem Enclosed:map[Err:28 Op:write]]",
            "full",
        ),
        ('PUT "http://h/v2/a/manifests/x": response status code 405: Method Not Allowed', "read-only"),
        ("Error: basic credential not found", "not logged in"),
        ('HEAD "http://h/v2/a/manifests/t": response status code 403: Forbidden', "not logged in"),
        ("denied: requested access to the resource is denied", "not logged in"),
        ("http: server gave HTTP response to HTTPS client", "does not speak TLS"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "is not trusted"),
        ("recognizable error message not found: response status code 500: Internal Server Error", "fails"),
        ('HTTP HEAD request missing required header "Docker-Content-Digest"', "not a registry's answer"),
        ("response status code 418: I'm a teapot", "not a registry's answer"),
        ("", "not a registry's answer"),
        ("panic: sync: negative WaitGroup counter\n\ngoroutine 1 [running]:\nmain.main()", "crashed"),
        ("fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:", "crashed"),
    ],
)
def test_a_refusal_is_told_in_words(output: str, message: str) -> None:
    error = refusal.explain(parse_repository("host.example/a", insecure=False), output)
    assert (type(error), error.exit_code) == (errors.NetworkError, 5)
    assert message in error.what.splitlines()[0]
    assert "host.example" in error.what.splitlines()[0]
    assert error.cause and error.next_step


@pytest.mark.parametrize(
    "output",
    [
        "Error: failed to copy: write /tmp/vetted-x/layout/ingest/sha256_1: no space left on device",
        "Error: signing a: create signature file: write /tmp/vetted-x/signature: no space left on device",
        "Error: open /tmp/vetted-x/blob: no space left on device\nUsage: oras",
    ],
)
def test_a_full_disk_here_is_not_the_registrys(output: str) -> None:
    error = refusal.explain(parse_repository("host.example/a", insecure=False), output)
    assert (type(error), error.exit_code) == (errors.StorageError, 6)
    assert error.what.startswith("/tmp/vetted-x/")
    assert error.what.endswith("no space left on this machine's disk")
    assert "df -h /tmp/vetted-x" in error.next_step


@pytest.mark.parametrize(
    "output",
    [
        "Error response from registry: unknown: write /var/lib/registry/blobs/data: no space left on device",
        'Error: PUT "http://h/v2/a/blobs/uploads/1": 500: mkdir /srv/registry: no space left on device',
    ],
)
def test_a_full_disk_there_is_the_registrys(output: str) -> None:
    error = refusal.explain(parse_repository("host.example/a", insecure=False), output)
    assert (type(error), error.what.splitlines()[0]) == (
        errors.NetworkError,
        "host.example: the registry's disk is full",
    )
