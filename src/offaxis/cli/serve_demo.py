"""``offaxis serve-demo``: a collector, the demo page, the dashboard and a simulated crowd."""

from __future__ import annotations

from typing import Annotated

import typer

from offaxis.cli.examples import example


@example("offaxis serve-demo")
def serve_demo(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8470,
    pace: Annotated[
        float, typer.Option(min=0.01, max=100, help="People of the crowd that report in a second.")
    ] = 2.0,
) -> None:
    """Show reports from both sides: draw a digit on one page, watch a crowd report on another.

    Everything is on this machine, in a temporary folder that is deleted at the end. Stop it with
    Ctrl-C.
    """
    import signal
    import time
    from contextlib import closing, suppress

    from offaxis.errors import MissingExtra, installing

    try:
        from offaxis.browser.demo_site import crowd, demo_site
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo needs {error.name}: {installing('collector')}") from None

    # Who asks it to end, such as a service manager, finds nothing left either.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), demo_site(port) as site:
        typer.echo(f"draw a digit     {site.page}")
        typer.echo(f"dashboard        {site.dashboard}")
        typer.echo(f"analyst's token  {site.analyst}")
        typer.echo("a simulated crowd reports now; stop with Ctrl-C")
        with closing(crowd(site)) as people:
            for _ in people:
                time.sleep(1 / pace)
    typer.echo("stopped; nothing is kept")
