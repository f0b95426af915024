"""Calling a metered API over HTTP: estimate before the call, settle by what the reply says.

The provider here is a small local server. It answers as providers of language models do: with
what was used, and with 429 and Retry-After when it has had enough. A real program makes its
transport without `clock=`.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from headgate import LimitExceeded, ManualClock
from headgate.integrations.httpx import AskedToWait, RateLimitTransport
from headgate.integrations.meter import Reply


class Model(BaseHTTPRequestHandler):
    """A model that answers with two tokens for each word, and tires at the word "enough"."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = asked["prompt"].split()
        used = len(words) + min(asked["max_tokens"], 2 * len(words))
        tired = "enough" in words
        body = json.dumps({} if tired else {"usage": {"total_tokens": used}}).encode()
        self.send_response(429 if tired else 200)
        if tired:
            self.send_header("Retry-After", "20")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Says nothing."""


def estimate(request: httpx.Request) -> int:
    """What a call may cost at worst."""
    asked = json.loads(request.content)
    return len(asked["prompt"].split()) + int(asked["max_tokens"])


def used(reply: Reply) -> int:
    """What it has cost."""
    return int(reply.json()["usage"]["total_tokens"])


def story(url: str, clock: ManualClock) -> list[str]:
    told = []
    tokens = RateLimitTransport(
        httpx.HTTPTransport(), "10000/minute token-bucket", resource="model", clock=clock,
        cost=estimate, settle=used, wait=0,
    )  # fmt: skip

    def ask(client: httpx.Client, prompt: str, most: int) -> None:
        try:
            reply = client.post("/", json={"prompt": prompt, "max_tokens": most})
            left = tokens.outgoing.limiter.peek("model").remaining
            told.append(f"{reply.status_code}, {left} left")
        except AskedToWait as asked:
            told.append(f"not sent: the model asked us to wait {asked.retry_after:g} s")
        except LimitExceeded as refusal:
            told.append(f"not sent: our own limit, for {refusal.retry_after:g} s")

    with httpx.Client(transport=tokens, base_url=url) as client:
        ask(client, "why is the sky blue " * 20, 4_000)
        ask(client, "tell me a very long story " * 300, 8_000)
        ask(client, "and now another one " * 100, 6_000)
        ask(client, "enough", 100)
        ask(client, "are you there", 100)
        clock.advance(20)
        ask(client, "are you there", 100)
    return told


def main() -> list[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        told = story(f"http://127.0.0.1:{server.server_port}", ManualClock())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    print(*told, sep="\n")
    return told


if __name__ == "__main__":
    main()
