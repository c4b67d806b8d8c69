"""How often one client may ask: a sliding window, and the same for uploads before anything of them is read."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Nothing may be fetched from elsewhere, whatever the page's framework would like to.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class RateLimit:
    """At most `count` requests of one client in any `seconds`.

    Args:
        count: Requests that are let through.
        seconds: Length of the window.
        clock: Seconds, from anywhere.
    """

    def __init__(self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = count
        self.seconds = seconds
        self._clock = clock
        self._seen: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def wait(self, client: str) -> int:
        """0 if this request may pass, which counts it; else the whole seconds after which to try again."""
        now = self._clock()
        with self._lock:
            # All clients, not this one alone: otherwise every address that ever came would stay in memory.
            for name, times in list(self._seen.items()):
                while times and times[0] <= now - self.seconds:
                    times.popleft()
                if not times:
                    del self._seen[name]
            mine = self._seen.setdefault(client, deque())
            if len(mine) >= self.count:
                # There is room again when the oldest request leaves the window.
                return max(1, math.ceil(mine[0] + self.seconds - now))
            mine.append(now)
            return 0


class UploadGate:
    """ASGI middleware: uploads of one client are counted, and every answer forbids requests to other places.

    Of an upload that breaks off nothing stays on the disk, and nothing is said in the terminal.

    Args:
        app: What it stands before.
        limit: Of uploads.
    """

    def __init__(self, app: Application, limit: RateLimit) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the server; an upload of a client that has sent too many gets status 429 instead."""
        # Web sockets and the server's own start and end carry no uploads.
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Scope) -> None:
            if message["type"] == "http.response.start":
                own = []
                for name, value in HEADERS.items():
                    own.append((name.encode(), value.encode()))
                kept = []
                for pair in message["headers"]:
                    # The framework's value of a header must not stand beside ours: browsers differ in which of two they
                    # follow.
                    if pair[0].decode("latin-1").lower() not in HEADERS:
                        kept.append(pair)
                message = {**message, "headers": kept + own}
            await send(message)

        # By its end: Gradio puts its paths below a prefix, which differs between releases.
        upload = scope["method"] == "POST" and scope["path"].rstrip("/").endswith("/upload")
        # ASGI lets a server leave out the client; all such requests count as those of one.
        client = (scope.get("client") or ("unknown",))[0]
        if upload and (seconds := self.limit.wait(client)):
            await _refuse(guarded, seconds)
        elif upload:
            await self.app(scope, _whole(receive), guarded)
        else:
            await self.app(scope, receive, guarded)


def _whole(receive: Receive) -> Receive:
    """The messages of an upload; one that breaks off ends as a malformed form.

    For a client that hangs up the framework would leave what it has of the picture on the disk, and print the whole
    stack. For a malformed form it removes the file and answers in one line.
    """
    from starlette.formparsers import MultiPartException  # here: it comes with the extra `web`

    complete = False

    async def message() -> Scope:
        nonlocal complete
        got = await receive()
        # Behind the last part a disconnect is no broken upload: the picture is there.
        if got["type"] == "http.disconnect" and not complete:
            raise MultiPartException("the upload broke off")
        complete = complete or not got.get("more_body", False)
        return got

    return message


async def _refuse(send: Send, seconds: int) -> None:
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", str(seconds).encode())]
    await send({"type": "http.response.start", "status": 429, "headers": head})
    await send({"type": "http.response.body", "body": f"Too many uploads; try again in {seconds} s.".encode()})
