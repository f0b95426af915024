"""What differs from Flask-Limiter, each for a reason that the page gives; what is not offered."""

from __future__ import annotations

import threading
from typing import Any

import flask
import httpx
import pytest
from compat_tools import START, asked, serving_wsgi, stop_time
from flask_limiter_tools import OURS, THEIRS, application, both, by_user, views

from headgate import ManualClock
from headgate.compat import NotOffered
from headgate.compat.limits.errors import ConfigurationError
from servers import free_port


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "limits.storage.memory", "limits.strategies")
    stop_time(monkeypatch, clock, "flask_limiter._extension")
    return clock


def test_differs_a_refusal_by_one_limit_takes_nothing_of_the_other(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)
        app.add_url_rule("/", "home", limiter.limit("3/second;5/minute")(lambda: "home"))
        return app

    calls = [*[("GET", "/")] * 5, 2, *[("GET", "/")] * 3, 2, *[("GET", "/")] * 3]
    theirs, ours = both(build, calls, clock)
    assert theirs == ours == [200] * 3 + [429] * 2 + [200] * 2 + [429] * 4

    def reverse(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)
        limit = limiter.limit("1/minute", key_func=by_user)
        shared = limiter.limit("2/second", key_func=lambda: "all")
        app.add_url_rule("/", "home", shared(limit(lambda: "home")))
        return app

    # The longer limit refuses ann, and Flask-Limiter has taken from the shorter one by then.
    users = [("GET", "/", {"x-user": name}) for name in ("ann", "ann", "bob")]
    theirs, ours = both(reverse, users, clock)
    assert theirs == [200, 429, 429]
    assert ours == [200, 429, 200]


def test_differs_headers(clock: ManualClock) -> None:
    clock.advance(0.75)  # to a whole second
    now = int(clock.now())
    calls = [*[("GET", "/own")] * 3]
    theirs, ours = both(views, calls, clock, ("X-RateLimit-Reset", "Retry-After"))
    assert theirs[0] == [200, str(now + 61), "61"]
    assert theirs[2] == [429, str(now + 61), "61"]
    assert ours[0] == [200, str(now + 60), None]
    assert ours[2] == [429, str(now + 60), "60"]


def test_differs_guesses_at_the_same_time_do_not_all_pass(clock: ManualClock) -> None:
    """What may have to be deducted is taken first, and given back if it need not be."""
    arrived = threading.Semaphore(0)
    go_on = threading.Event()

    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)

        @app.route("/login")
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code != 200)
        def login() -> Any:
            arrived.release()
            go_on.wait(60)
            return "no", 401

        return app

    passed = []
    for lib, more, expected in (
        (THEIRS, {}, 5), (OURS, {"storage_options": {"clock": clock}}, 2),
    ):  # fmt: skip
        go_on.clear()
        answers: list[int] = []
        with serving_wsgi(build(lib, more)) as url:
            threads = [
                threading.Thread(
                    target=lambda url=url, answers=answers: answers.append(
                        httpx.get(f"{url}/login", timeout=60).status_code
                    )
                )
                for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            for _ in range(expected):
                assert arrived.acquire(timeout=60)
            go_on.set()
            for thread in threads:
                thread.join()
        passed.append(answers.count(401))
    assert passed == [5, 2]


def test_nothing_is_deducted_without_a_response(clock: ManualClock) -> None:
    app, limiter = application(OURS, {"storage_options": {"clock": clock}}, {"TESTING": True})

    @app.route("/")
    @limiter.limit("1/minute", deduct_when=lambda response: response.status_code != 200)
    def home() -> Any:
        raise LookupError

    client = app.test_client()
    for _ in range(3):
        with pytest.raises(LookupError):
            client.get("/")


def test_differs_addresses() -> None:
    app = flask.Flask("app")

    def of(lib: Any, peer: str) -> str:
        with app.test_request_context("/", environ_base={"REMOTE_ADDR": peer}):
            found: str = lib.util.get_remote_address()
            return found

    assert of(THEIRS, "2001:db8::1") != of(THEIRS, "2001:db8::2")
    assert of(OURS, "2001:db8::1") == of(OURS, "2001:db8::2")
    assert of(OURS, "192.0.2.7") == of(THEIRS, "192.0.2.7")
    behind = OURS.util.behind("10.0.0.0/8")
    for peer, client in (("10.0.0.1", "192.0.2.7"), ("192.0.2.9", "192.0.2.9")):
        headers = {"X-Forwarded-For": "6.6.6.6, 192.0.2.7"}
        with app.test_request_context("/", environ_base={"REMOTE_ADDR": peer}, headers=headers):
            assert behind() == client


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        ({}, [500, 500, 500], [200, 200, 429]),
        ({"in_memory_fallback_enabled": True}, [200, 200, 429], [200, 200, 429]),
        ({"swallow_errors": True}, [200, 200, 200], [200, 200, 200]),
    ],
)
def test_differs_a_server_that_is_away(
    options: dict[str, Any], theirs: list[int], ours: list[int]
) -> None:
    for lib, expected in ((THEIRS, theirs), (OURS, ours)):
        address = f"redis://127.0.0.1:{free_port()}"
        app, limiter = application(lib, {}, storage_uri=address, **options)
        app.logger.disabled = True
        app.add_url_rule("/", "home", limiter.limit("2/hour")(lambda: "home"))
        with serving_wsgi(app) as url:
            assert asked(url, [("GET", "/")] * 3, ManualClock()) == expected


def test_differs_a_limit_on_another_function_adds_to_the_defaults(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more, default_limits=["2/minute"])

        @limiter.limit("4/minute")
        def helper() -> str:
            return "helped"

        @app.route("/")
        def home() -> Any:
            return helper()

        return app

    # Flask-Limiter learns of the helper by the first call, and leaves out the defaults then.
    theirs, ours = both(build, [("GET", "/")] * 5, clock)
    assert theirs == [200, 200, 200, 200, 429]
    assert ours == [200, 200, 429, 429, 429]


def test_differs_functions_of_one_name_are_apart(clock: ManualClock) -> None:
    def build(lib: Any, more: dict[str, Any]) -> flask.Flask:
        app, limiter = application(lib, more)
        for path, text in (("/a", "1/minute"), ("/b", "2/minute")):
            app.add_url_rule(path, path[1:], limiter.limit(text)(lambda: "view"))
        return app

    theirs, ours = both(build, [("GET", "/b")] * 3, clock)
    assert theirs == [200, 429, 429]
    assert ours == [200, 200, 429]


def test_differs_a_broken_text_is_an_error() -> None:
    _, limiter = application(THEIRS, {})
    limiter.limit("5 a day")(lambda: "home")  # logged at each call, which has no limit
    _, limiter = application(OURS, {})
    with pytest.raises(ValueError, match="5 a day"):
        limiter.limit("5 a day")


# -- what is not offered


def test_what_is_not_offered_says_what_to_use() -> None:
    def made(**options: Any) -> None:
        app = flask.Flask("app")
        app.config.update(options.pop("config", {}))
        OURS.flask_limiter.Limiter(by_user, app=app, **options)

    with pytest.raises(NotOffered, match="on_breach"):
        made(meta_limits=["1/day"])
    with pytest.raises(NotOffered, match="on_breach"):
        made(config={"RATELIMIT_META": "1/day"})
    with pytest.raises(NotOffered, match="on_breach"):
        OURS.flask_limiter.MetaLimit("1/day")
    with pytest.raises(NotOffered, match="in_memory_fallback_enabled"):
        made(in_memory_fallback=["1/day"])
    with pytest.raises(NotOffered, match="in_memory_fallback_enabled"):
        made(config={"RATELIMIT_IN_MEMORY_FALLBACK": "1/day"})
    with pytest.raises(ConfigurationError, match="moving-window"):
        made(strategy="leaky-bucket")
    with pytest.raises(TypeError, match="no argument colour"):
        made(colour="red")
    _, limiter = application(OURS, {})
    with pytest.raises(NotOffered, match=r"headgate\.Limiter"), limiter.limit("1/day"):
        pass
    with pytest.raises(NotOffered, match="on_breach"):
        limiter.limit("1/day", meta_limits=["1/day"])
    with pytest.raises(TypeError, match="colour"):
        limiter.limit("1/day", colour="red")
    with pytest.raises(NotOffered, match="each blueprint"):
        limiter.exempt(by_user, flags=OURS.flask_limiter.ExemptionScope.DESCENDENTS)
    with pytest.raises(RuntimeError, match="init_app"):
        OURS.flask_limiter.Limiter(by_user).reset()
