"""Paths: all spellings of one path are one path."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.paths import normal_path


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("/login", "/login"),
        ("/", "/"),
        ("", "/"),
        ("//", "/"),
        ("login", "/login"),
        ("//login", "/login"),
        ("/login/", "/login"),
        ("/login//", "/login"),
        ("/./login/.", "/login"),
        ("/a/../login", "/login"),
        ("/a//../login", "/login"),
        ("/../../login", "/login"),
        ("/a/..", "/"),
        ("/%6Cog%69n", "/login"),
        ("/%2e%2E/login", "/login"),
        ("/a/%2e%2e/login", "/login"),
        ("/Login", "/Login"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%2F..%2Fb", "/a%2F..%2Fb"),
        ("/%256C", "/%256C"),
        ("/100%", "/100%25"),
        ("/100%25", "/100%25"),
        ("/%zz%4", "/%25zz%254"),
        ("/a;v=1/b;w", "/a;v=1/b;w"),
        ("/a%3Bv", "/a;v"),
        ("/caf%C3%A9", "/café"),
        ("/café", "/café"),
        ("/%FF%fe", "/%FF%FE"),
        ("/%E2%82", "/%E2%82"),
        ("/\ud800", "/%ED%A0%80"),
        ("/a%00b", "/a%00b"),
        ("/a\0b\n", "/a%00b%0A"),
        ("/.well-known/x", "/.well-known/x"),
        ("/...", "/..."),
        ("/a+b%20c", "/a+b c"),
        ("/a\\..\\b", "/a\\..\\b"),
        ("*", "*"),
        ("/*", "/*"),
    ],
)
def test_paths(raw: str, normal: str) -> None:
    assert normal_path(raw) == normal
    assert normal_path(raw.encode("utf-8", "surrogatepass")) == normal


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("/%6C", "/%256C"),
        ("/a/b//", "/a/b"),
        ("/100%", "/100%25"),
        (b"/caf\xc3\xa9/\xff", "/café/%FF"),
    ],
)
def test_paths_that_a_server_has_decoded(raw: str | bytes, normal: str) -> None:
    assert normal_path(raw, decoded=True) == normal


calm = settings(deadline=None, derandomize=True)  # a shared machine is slow at times

pieces = st.lists(
    st.one_of(
        st.sampled_from(["/", "//", ".", "..", "%", "%2F", "%2e", "%25", "%00", "%C3", "%A9", "a"]),
        st.text(max_size=3),
    ),
    max_size=12,
).map("".join)
raws = st.one_of(pieces, st.binary(max_size=20))


@calm
@given(raws)
@example("/%252e%252e/x")
@example("%2")
def test_once_is_enough(raw: str | bytes) -> None:
    normal = normal_path(raw)
    assert normal_path(normal) == normal
    assert normal_path(normal.encode()) == normal
    assert normal_path(normal_path(raw, decoded=True)) == normal_path(raw, decoded=True)


@calm
@given(raws)
def test_what_comes_out_is_safe(raw: str | bytes) -> None:
    normal = normal_path(raw)
    assert normal == "*" or normal[0] == "/"
    assert normal == "/" or normal[-1] != "/"
    assert "//" not in normal
    assert not {".", ".."} & set(normal.split("/"))
    normal.encode()  # no half characters
    assert not any(character < " " or character == "\x7f" for character in normal)


segments = st.text(min_size=1, max_size=5).filter(lambda text: text not in (".", ".."))


@calm
@given(st.lists(segments, min_size=1, max_size=4), st.data())
def test_every_spelling_of_a_path_is_the_same(parts: list[str], data: st.DataObject) -> None:
    """Encoded in part or in whole, with empty segments, dots and detours."""
    detours = st.sampled_from(["/", "//", "/./", "/%2e/", "/x/../", "/x/%2E%2e/"])

    def spelt(part: str) -> str:
        encoded = quote(part, safe="", errors="surrogatepass")
        return encoded.lower() if data.draw(st.booleans()) and encoded.islower() else encoded

    plain = "/" + "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)
    raw = "".join(data.draw(detours) + spelt(part) for part in parts)
    assert normal_path(raw + data.draw(st.sampled_from(["", "/", "/."]))) == normal_path(plain)


@calm
@given(st.lists(segments, max_size=4), st.lists(segments, max_size=4))
def test_paths_that_differ_stay_different(one: list[str], other: list[str]) -> None:
    def raw(parts: list[str]) -> str:
        return "/" + "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)

    assert (normal_path(raw(one)) == normal_path(raw(other))) == (one == other)


def test_long_paths_take_no_time() -> None:
    assert normal_path("/" + "../" * 200_000) == "/"
    assert len(normal_path("%" * 300_000)) == 900_001
