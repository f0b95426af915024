"""Vegas: how many calls stand in a queue somewhere, told by how much slower they are than alone."""

from __future__ import annotations

import math
from random import Random

from .estimator import Step, bounds, log10_root, share

__all__ = ["Vegas"]

PATIENCE = 10
"""So many samples a queue has to run dry."""


class Vegas:
    """TCP Vegas for calls: the queue is limit * (1 - quickest time / time now).

    Below `alpha` calls in the queue the limit grows, above `beta` it falls; both, and the steps,
    grow with the logarithm of the limit unless they are said.

    From time to time the quickest time is taken anew, as it may have become a longer one. Taken
    under load it would count the queue as part of it, and the limit would creep up for ever; so
    for that moment the limit is halved and the queue runs dry (`drain=False`: it is taken under
    load, as in the original).
    """

    def __init__(
        self,
        initial: int = 20,
        least: int = 1,
        most: int = 1000,
        *,
        alpha: Step | float | None = None,
        beta: Step | float | None = None,
        threshold: Step | float | None = None,
        increase: Step | None = None,
        decrease: Step | None = None,
        smoothing: float = 1.0,
        probe: int = 30,
        drain: bool = True,
        random: Random | None = None,
    ) -> None:
        bounds(initial, least, most)
        self.least = least
        self.most = most
        self.alpha = _step(alpha, lambda limit: 3 * log10_root(limit))
        self.beta = _step(beta, lambda limit: 6 * log10_root(limit))
        self.threshold = _step(threshold, log10_root)
        self.increase = _step(increase, lambda limit: limit + log10_root(limit))
        self.decrease = _step(decrease, lambda limit: limit - log10_root(limit))
        self.smoothing = share("smoothing", smoothing)
        self.probe = probe
        self.drain = drain
        self.quickest = 0
        """The time of a call that meets no other, in microseconds; 0 until one was seen."""
        self._estimate = float(initial)
        self._random = random or Random()
        self._jitter = self._next_jitter()
        self._samples = 0
        self._draining = 0

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        if self._draining:
            return max(self.least, int(self._estimate) // 2)
        return int(self._estimate)

    def sample(self, rtt: int, in_flight: int, dropped: bool = False) -> int:
        """Hear of a call; returns the limit from now on."""
        self._samples += 1
        if dropped:  # how long it took says nothing: it may have been refused at once
            self._move(self.decrease(self._estimate))
        elif self._draining:
            self._draining -= 1  # where it cannot run dry, it is taken as it is
            if in_flight <= self.limit or not self._draining:
                self._draining, self.quickest = 0, max(1, rtt)
        elif self._samples >= self._jitter * self.probe * self._estimate:
            self._samples, self._jitter = 0, self._next_jitter()
            if self.drain:
                self._draining = PATIENCE
            else:
                self.quickest = max(1, rtt)
        elif not self.quickest or rtt < self.quickest:
            self.quickest = max(1, rtt)
        else:
            self._judge(rtt, in_flight)
        return self.limit

    def _judge(self, rtt: int, in_flight: int) -> None:
        limit = self._estimate
        if in_flight * 2 < limit:  # a limit that nobody comes near has not been tried
            return
        queue = math.ceil(limit * (1 - self.quickest / rtt))
        if queue <= self.threshold(limit):
            self._move(limit + self.beta(limit))
        elif queue < self.alpha(limit):
            self._move(self.increase(limit))
        elif queue > self.beta(limit):
            self._move(self.decrease(limit))

    def _move(self, limit: float) -> None:
        limit = max(self.least, min(self.most, limit))
        self._estimate = (1 - self.smoothing) * self._estimate + self.smoothing * limit

    def _next_jitter(self) -> float:
        # So that many limiters of one server do not take their measure at the same time.
        return self._random.uniform(0.5, 1.0)

    def __repr__(self) -> str:
        return f"<Vegas {self.limit}, quickest {self.quickest / 1000:g} ms>"


def _step(given: Step | float | None, default: Step) -> Step:
    if given is None:
        return default
    if callable(given):
        return given
    number = float(given)
    return lambda limit: number
