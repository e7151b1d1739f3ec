"""Names of repositories and images in registries."""

from __future__ import annotations

import pytest

from builder.publish.reference import parse_reference, parse_repository

DIGEST = "sha256:" + "1" * 64


@pytest.mark.parametrize(
    "text",
    ["localhost/a", "localhost:5000/a/b", "127.0.0.1:5000/a", "[::1]:5000/a", "r.example.org/team/vetted__x/y-z.0"],
)
def test_what_names_a_repository(text: str) -> None:
    assert str(parse_repository(text, insecure=False)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a/b", "localhost", "localhost/", "/a", "http://a.b/c", "a.b/C", "a.b/c:tag", "a.b//c", "a.b/../c",
        "-a.b/c", "a.b/-c", "a.b:0/c", "a.b:65536/c", "a.b:x/c", "user:secret@a.b/c", "a.b/c\n", " a.b/c", "a.b/c d",
        "a.b/" + "c" * 260,
    ],
)  # fmt: skip
def test_what_names_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST/PATH"):
        parse_repository(text, insecure=False)


@pytest.mark.parametrize(
    ("text", "tag", "digest"),
    [
        ("localhost:5000/a:t", "t", None),
        (f"localhost:5000/a@{DIGEST}", None, DIGEST),
        (f"localhost:5000/a:t@{DIGEST}", "t", DIGEST),
        ("a.b/c:_T-1.0", "_T-1.0", None),
    ],
)
def test_what_names_an_image(text: str, tag: str | None, digest: str | None) -> None:
    read = parse_reference(text, insecure=False)
    assert (read.tag, read.digest) == (tag, digest)
    assert str(read) == (text if not (tag and digest) else text.replace(":t@", "@"))


@pytest.mark.parametrize(
    "text", ["a.b/c", "a.b:5000/c", "a.b/c:", "a.b/c:-t", "a.b/c:t t", f"a.b/c@{DIGEST}1", "a.b/c@md5:1", "a.b/c@"]
)
def test_what_names_no_image(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (tag|digest)|names no image|is not HOST/PATH"):
        parse_reference(text, insecure=False)
