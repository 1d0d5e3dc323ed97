"""``GET /v1/green/status``: what the server says about itself, for ``green doctor --live``.

The page is a route of vLLM's own app, inside all its middleware: what guards the app
(``--api-key``) guards the page. vLLM's endpoint plugins are no way in, since they load only where
``VLLM_PLUGINS`` names them, and that list shuts out every plugin it does not name.
"""

from __future__ import annotations

import asyncio
from typing import Any

from green_core.errors import GreenError
from vllm_green.asgi import Receive, Scope, Send, send_error, send_json
from vllm_green.front import frontend

PATH = "/v1/green/status"


def offer_page(app: Any) -> None:
    """Add the page to a Starlette app, once."""
    if all(getattr(route, "path", "") != PATH for route in app.routes):
        app.add_route(PATH, StatusPage(), methods=["GET"], include_in_schema=False)


class StatusPage:
    """The page as an ASGI app; 503 in one line while no engine has published anything.

    Requests that come while one is being answered share its answer. An engine that hangs makes
    each wait; they must not fill the pool of threads that serves all of vLLM.
    """

    def __init__(self) -> None:
        self._asking: asyncio.Task[bytes] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(frontend().status))
        try:
            body = await asyncio.shield(self._asking)
        except GreenError as error:
            await send_error(send, 503, "ServiceUnavailableError", str(error))
            return
        await send_json(send, 200, body)
