"""LoRA slots: how many different adapters may be in the running batch (vLLM's `max_loras`).

Semantics: `scheduled_loras` in vLLM's scheduler. vLLM gathers the adapters of the running requests
anew in each step; here they are counted as requests come and go. Which of them count depends on
the version. 0.32 looks at those that the step has given a token: whenever budget is left for
somebody who waits, that is all but the ones whose last token is under way (async scheduling). 0.33
looks at all that hold a place.
"""

from __future__ import annotations


class LoraSlots:
    """The adapters of the running requests.

    Args:
        max_loras: most different ones at a time.
        until_the_end: whether a request keeps its slot while its last token is under way (0.33).

    Attributes:
        users: running requests by adapter; none that has no user.
    """

    __slots__ = ("max_loras", "until_the_end", "users")

    def __init__(self, max_loras: int, until_the_end: bool) -> None:
        self.max_loras = max_loras
        self.until_the_end = until_the_end
        self.users: dict[str, int] = {}

    def has_room_for(self, adapter: str) -> bool:
        """Whether a request with this adapter, or with none (""), may join those that run."""
        users = self.users
        return not adapter or adapter in users or len(users) < self.max_loras

    def take(self, adapter: str) -> None:
        """A request joins those that run."""
        if adapter:
            self.users[adapter] = self.users.get(adapter, 0) + 1

    def leave(self, adapter: str) -> None:
        """One of them no longer counts."""
        if adapter:
            left = self.users[adapter] - 1
            if left:
                self.users[adapter] = left
            else:
                del self.users[adapter]
