"""A shop in Django, all in one file: limits by settings, and views with limits of their own.

`python django_app.py` serves it in a process of its own and calls it.
"""

import subprocess
import sys
from http.client import HTTPConnection
from wsgiref.simple_server import make_server

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from headgate.integrations.django import limited

SETTINGS = {
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": ["headgate.integrations.django.RateLimitMiddleware"],
    "HEADGATE": {
        "LIMITS": ["100/minute"],
        # "STORE": "redis://localhost:6379/0",  for more than one process
        "USER": lambda request: request.headers.get("X-User"),  # without it: request.user
    },
}


def show(request: HttpRequest, item: int) -> HttpResponse:
    """Anybody may look, as long as it is not a hundred times a minute."""
    return JsonResponse({"item": item})


@limited("3/minute", key="ip", count="failures")
def login(request: HttpRequest) -> HttpResponse:
    """Guessing ends soon; whoever knows the password is not counted."""
    right = request.headers.get("X-Password") == "secret"
    return HttpResponse("welcome" if right else "wrong", status=200 if right else 401)


@method_decorator(limited("1/minute", key=["user", "param:item"]), name="dispatch")
class Order(View):  # type: ignore[misc] # Django has no types
    """One of each item for each user, so that a double click is one order."""

    async def get(self, request: HttpRequest, item: int) -> HttpResponse:
        return HttpResponse(f"{item} ordered", status=201)


urlpatterns = [
    path("items/<int:item>", show),
    path("items/<int:item>/order", Order.as_view()),
    path("login", login),
]


def serve() -> None:
    settings.configure(**SETTINGS)
    with make_server("127.0.0.1", 0, get_wsgi_application()) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


def main() -> dict[str, list[int]]:
    server = subprocess.Popen(
        [sys.executable, __file__, "serve"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with server:
        assert server.stdout is not None
        port = int(server.stdout.readline())

        def status(path: str, **headers: str) -> int:
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path, headers={"X-User": "ann", **headers})
            with connection.getresponse() as response:
                response.read()
            connection.close()
            return response.status

        calls = {
            "look": [status("/items/7") for _ in range(3)],
            "login": [status("/login", **{"X-Password": "secret"}) for _ in range(5)],
            "guess": [status("/login") for _ in range(5)],
            "order": [status(f"/items/{item}/order") for item in (7, 7, 8)],
        }
        server.terminate()
    for name, statuses in calls.items():
        print(f"{name:6}", *statuses)
    return calls


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
