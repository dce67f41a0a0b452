"""The service as a process: it listens, loads the models, and answers until a signal ends it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.tools.serve.limits import Limits

BACKLOG = 2048
# Longer than proxies keep an idle connection, so that the proxy closes it between requests.
KEEP_ALIVE_SECONDS = 75


class Address(NamedTuple):
    """Where the service listens.

    Attributes:
        port: 0: any free one.
        allow_hosts: names that requests may have as their host, besides `host`.
    """

    host: str
    port: int
    allow_hosts: Sequence[str] = ()


def serve(
    models: Sequence[Path],
    options: DecodingOptions,
    limits: Limits,
    address: Address,
    *,
    announce: Callable[[str], object],
) -> None:
    """Translate over HTTP until SIGINT or SIGTERM; then finish all requests and raise it again.

    Connections made while the models load wait.

    Args:
        announce: called with the URL as soon as the service answers.

    Raises:
        UserError: if the address is not available.
    """
    import uvicorn

    from nmtdeep.tools.serve.application import application

    host, port, allow_hosts = address
    with _listen(host, port) as listening:
        name, number = listening.getsockname()[:2]
        # Only on the machine itself are its names known.
        checked = allow_hosts or ipaddress.ip_address(name).is_loopback
        hosts = (host, name, *allow_hosts) if checked else None
        app = application(Translator.load(models, options), limits, hosts)
        url = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                announce(url)

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
            timeout_graceful_shutdown=limits.grace,
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
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen: {reason}",
            where=f"{host}, port {port}",
            hint="choose another --host or --port",
        ) from error
    return listening
