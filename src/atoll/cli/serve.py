"""``atoll serve``: run the engine until it is told to stop."""

from pathlib import Path
from typing import Annotated, Any

import typer


def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")
    ] = None,
    no_tcp: Annotated[bool, typer.Option("--no-tcp", help="Only the unix socket.")] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate chain of the TCP port.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Its private key, if not in the same file.")
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Directory of this engine.")] = None,
    config: Annotated[Path | None, typer.Option(help="An atoll.toml.")] = None,
    local: Annotated[bool, typer.Option("--local", hidden=True)] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve the API on a unix socket and a TCP port until SIGTERM; sandboxes run on."""
    import uvloop

    from atoll.host import privacy
    from atoll.load_settings import load
    from atoll.server import logs, main

    privacy.keep()
    given: dict[str, Any] = {
        "server.host": host, "server.port": port, "storage.state_dir": state_dir,
        "server.tls_certificate": tls_certificate, "server.tls_key": tls_key,
    }  # fmt: skip
    flags = {name: value for name, value in given.items() if value is not None}
    if no_tcp or (local and port is None):
        flags["server.port"] = None
    settings = load(flags, file=config).settings
    logs.configure(settings.server.log_level, settings.server.log_format)
    uvloop.run(main.serve(settings, local=local, ready_fd=ready_fd))
