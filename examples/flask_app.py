"""A shop in Flask: a limit for everybody, and some views with limits of their own.

Without HEADGATE_STORE in its configuration (such as redis://localhost:6379/0) the counts are
kept in memory. `flask --app flask_app run` serves it.
"""

from flask import Flask, Response, request

from headgate import Refused
from headgate.integrations.flask import RateLimit

app = Flask(__name__)
limit = RateLimit(app, "100/minute", user=lambda request: request.headers.get("X-User"))


@app.get("/items/<int:item>")
def show(item: int) -> dict[str, int]:
    """Anybody may look, as long as it is not a hundred times a minute."""
    return {"item": item}


@app.post("/login")
@limit.limited("3/minute", key="ip", count="failures")
def login() -> tuple[str, int]:
    """Guessing ends soon; whoever knows the password is not counted."""
    return ("welcome", 200) if request.form.get("password") == "secret" else ("wrong", 401)


@app.post("/items/<int:item>/order")
@limit.limited("1/minute", key=["user", "param:item"])
def order(item: int) -> tuple[str, int]:
    """One of each item for each user, so that a double click is one order."""
    return f"{item} ordered", 201


@app.get("/export")
@limit.limited("1 concurrent", key="user", status=503)
def export() -> Response:
    """A long answer: one at a time for each user, until its last byte."""
    return Response((f"{row}\n" for row in range(3)), mimetype="text/csv")


@app.get("/health")
@limit.exempt
def health() -> str:
    """Whoever watches over us is never limited."""
    return "well"


@app.errorhandler(Refused)
def refused(error: Refused) -> tuple[dict[str, str], int]:
    """In the words of this shop; the headers are added all the same."""
    return {"sorry": f"limited by {error.verdict.rule}"}, error.verdict.status


def main() -> dict[str, list[int]]:
    client = app.test_client()

    def status(path: str, method: str = "GET", **form: str) -> int:
        # What a call holds comes back when its response is closed, as servers do it.
        with client.open(path, method=method, data=form, headers={"X-User": "ann"}) as response:
            return response.status_code

    with client.get("/export", headers={"X-User": "ann"}) as first:
        exports = [first.status_code, status("/export")]
    exports.append(status("/export"))
    calls = {
        "look": [status("/items/7") for _ in range(3)],
        "login": [status("/login", "POST", password="secret") for _ in range(5)],
        "guess": [status("/login", "POST", password="guess") for _ in range(5)],
        "order": [status(f"/items/{item}/order", "POST") for item in (7, 7, 8)],
        "export": exports,
        "health": [status("/health") for _ in range(3)],
    }
    for name, statuses in calls.items():
        print(f"{name:7}", *statuses)
    with client.post("/items/7/order", headers={"X-User": "ann"}) as refusal:
        print(refusal.json, refusal.headers["RateLimit"])
    return calls


if __name__ == "__main__":
    main()
