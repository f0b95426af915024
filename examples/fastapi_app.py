"""A shop's API with FastAPI: a limit for everybody, one for guesses at login, one for exports.

`uvicorn examples.fastapi_app:app` serves it; run as a script, it is called a few times instead.
"""

import asyncio
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI, HTTPException

from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, install, limited

GUESSES = """
version: 1
rules:
  - name: guesses
    match: {method: POST, path: /login}
    key: [ip]
    limit: 2/hour sliding-log
    count: failures
"""

app = FastAPI(title="shop")
install(app)
app.add_middleware(RateLimitMiddleware, "20/minute sliding-log", name="all")


@app.post("/login", dependencies=[Depends(RateLimit(rules=GUESSES))])
async def login(password: str) -> dict[str, str]:
    """Only failures count, so whoever knows the password is never locked out by using it."""
    if password != "open sesame":
        raise HTTPException(401)
    return {"token": "t0k3n"}


@app.get("/orders/{customer}")
@limited("2/minute sliding-log", key="param:customer")
async def orders(customer: str) -> list[str]:
    """Each customer's orders are asked for twice a minute at most."""
    return [f"{customer}: one lamp"]


one_at_a_time = RateLimit("1 concurrent", name="export")


@app.get("/export")
async def export(_: Annotated[object, Depends(one_at_a_time)]) -> str:
    """A slow one, of which each address may have one under way."""
    await asyncio.sleep(0.05)
    return "a long list"


async def calls() -> dict[str, list[int]]:
    """Call the application as a client would."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        passwords = ["open sesame"] * 4 + ["1234", "abcd", "qwerty"]
        found = {
            "login": [await client.post("/login", params={"password": p}) for p in passwords],
            "orders": [
                await client.get(f"/orders/{name}") for name in ("ann", "ann", "bob", "ann")
            ],
            "export": await asyncio.gather(*(client.get("/export") for _ in range(2))),
        }
        found["export"].append(await client.get("/export"))
    for name, answers in found.items():
        for answer in answers:
            told = answer.headers.get_list("ratelimit")
            print(f"{name:8}{answer.status_code}  {', '.join(told)}")
    return {name: [answer.status_code for answer in answers] for name, answers in found.items()}


def main() -> dict[str, list[int]]:
    return asyncio.run(calls())


if __name__ == "__main__":
    main()
