"""Names of other libraries over headgate: moving in begins with a changed import.

`headgate.compat.limits`, `.slowapi`, `.flask_limiter` and `.django_ratelimit` have the names that
programs written for those libraries use. What they count is counted by headgate. What cannot be
done in the same sense is refused with an error that names what to use in its place.
"""

from __future__ import annotations

from ..errors import HeadgateError

__all__ = ["NotOffered"]


class NotOffered(HeadgateError, TypeError):
    """Something of the other library that is not carried over; it says what to use instead."""
