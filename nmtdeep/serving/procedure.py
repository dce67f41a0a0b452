"""From a run to a service that answers until it is asked to leave."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from nmtdeep.decoding.opening import Options, open_translator
from nmtdeep.errors import UserError
from nmtdeep.serving.messages import Limits

BACKLOG = 2048
# Longer than proxies keep an idle connection, so that it is them who close it, between requests.
KEEP_ALIVE_SECONDS = 75


def serve(
    models: Sequence[Path],
    options: Options,
    *,
    host: str,
    port: int,
    at_once: int,
    patience: float,
    limits: Limits,
    grace: int,
    announce: Callable[[str], object],
) -> None:
    """Translate over HTTP until SIGINT or SIGTERM, then answer what was asked, and raise it again.

    Connections that come while the models load wait.

    Args:
        port: 0: any that is free.
        at_once: most lines that are translated together.
        patience: seconds that lines wait for others to be translated with.
        grace: seconds for the last answers.
        announce: gets the address as soon as there are answers.

    Raises:
        UserError: if FastAPI or uvicorn is missing, or the address cannot be had.
    """
    try:
        import uvicorn

        from nmtdeep.serving.application import application_of
    except ImportError as error:
        raise UserError(
            f'a service needs {error.name}, which is not here: pip install "nmtdeep[serve]"'
        ) from error

    with _listen(host, port) as listening:
        translator = open_translator(models, options)
        app = application_of(translator, options, limits, at_once=at_once, patience=patience)
        address = _address(listening)

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                announce(address)

        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace,
        )
        Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen at {host}, port {port}: {why}: choose another --host or --port"
        ) from error
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
