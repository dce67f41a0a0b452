"""The service as a process: listens, loads the models, and answers until a signal ends it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.tools.serve import ServiceOptions

BACKLOG = 2048
# Longer than proxies keep an idle connection, so that the proxy closes it between requests.
KEEP_ALIVE_SECONDS = 75


def serve(
    models: Sequence[Path],
    decoding: DecodingOptions,
    options: ServiceOptions,
    *,
    announce: Callable[[str], object],
) -> None:
    """Translate over HTTP until SIGINT or SIGTERM; then finish all requests and raise it again.

    Connections made while the models load wait.

    Args:
        announce: called with the URL as soon as the models are loaded.

    Raises:
        UserError: if the address is not available.
    """
    import uvicorn

    from nmtdeep.tools.serve.application import application

    with _listen(options.host, options.port) as listening:
        name, number = listening.getsockname()[:2]
        allowed = options.allow_host or ()
        # Only on the machine itself are its names known.
        checked = allowed or ipaddress.ip_address(name).is_loopback
        hosts = (options.host, name, *allowed) if checked else None
        config = uvicorn.Config(
            application(Translator.load(models, decoding), options, hosts),
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=options.grace,
        )
        announce(f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}")
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        what = f"cannot listen: {getattr(error, 'strerror', None) or error}"
        hint = "choose another --host or --port"
        raise UserError(what, where=f"{host}, port {port}", hint=hint) from error
