"""The explorer's server: marimo's application on this machine's loopback, for this machine's browsers alone."""

import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
LONGEST = 4000  # bytes of a query: a link with all settings has under 700, the page's own requests under 1000

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def guard(application: Application, port: int) -> Application:
    """An application that answers only what was asked under this machine's own name.

    Another web page in the browser can lead requests here, under a name of its own that it lets point to 127.0.0.1, or
    by opening a WebSocket across origins. Both show in the headers Host and Origin, which a page cannot choose. A link
    too long to be one of the explorer's is refused, as marimo would try to open its WebSocket for ever.

    Args:
        application: what answers.
        port: on which it is served.

    >>> guard(lambda scope, receive, send: None, port=80).__name__
    'guarded'
    """
    hosts = {f"{name}:{port}".encode() for name in NAMES}
    origins = {b"http://" + host for host in hosts}

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await application(scope, receive, send)
            return
        given = {name: [value for key, value in scope["headers"] if key == name] for name in (b"host", b"origin")}
        known = len(given[b"host"]) == 1 and given[b"host"][0] in hosts
        if not known or any(origin not in origins for origin in given[b"origin"]):
            await _refuse(scope, send, 403)
        elif len(scope["query_string"]) > LONGEST:
            await _refuse(scope, send, 414, b"This link cannot be used: it is too long to be one of the explorer's.\n")
        else:
            await application(scope, receive, send)

    return guarded


async def _refuse(scope: Scope, send: Send, status: int, told: bytes = b"") -> None:
    """Answer a request with nothing but a status and a line of text."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-length", str(len(told)).encode()), (b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": told})


def bind(port: int) -> socket.socket:
    """A socket that listens on the loopback; port 0 is any free one.

    Raises:
        ValueError: a port out of range.
        OSError: the port is taken.

    >>> with bind(0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"port={port}: must be a whole number from 0 to 65535")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise OSError(f"port {port} on {HOST} cannot be used ({error.strerror}): take another with --port") from None
    return listening


def serve(listening: socket.socket) -> None:
    """Serve the explorer until the process is told to end."""
    import marimo
    import uvicorn

    page = Path(__file__).parent / "app.py"
    application: Any = marimo.create_asgi_app(quiet=True).with_app(path="", root=str(page)).build()
    state = application.routes[0].app.state  # of the one page; there is no public way to its configuration
    state.config_manager = state.config_manager.with_overrides({"display": {"theme": "system"}})
    settings = uvicorn.Config(
        guard(application, listening.getsockname()[1]),
        log_level="warning",
        timeout_graceful_shutdown=1,  # open pages would keep it
        ws_per_message_deflate=False,  # to send a picture on this machine takes less time than to compress it
    )
    uvicorn.Server(settings).run(sockets=[listening])
