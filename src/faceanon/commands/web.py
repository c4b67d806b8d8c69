"""Review photos and films, anonymize and recover them on a web page of this machine.

Drop photos or films, look at every box: add the face that was missed, remove a wrong one, say who stays, who becomes
whom, and what is hidden for good. A film has a time line of its people. Then type a password, look at the strangers,
and download the results. The decisions are a file too (`faceanon anonymize --boxes`). The right password brings the
persons back; what a wrong one does depends on the model: the one that ships refuses it. Pictures of people who do not
exist are there to try. Ctrl+C ends it.

  faceanon web
  faceanon web --model runs/persona_s2/model --device cuda --port 8000

The page needs no internet and fetches nothing. It listens on this machine alone unless --host says otherwise; there is
no login and no encryption, so leave it that way unless everybody in reach may use it. Needs the extra `web`.
Exit code: 0 ended by Ctrl+C, 1 failed, 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import signal
import sys
import threading
from dataclasses import dataclass

from faceanon.commands._files import MANY, MODEL_HELP, load_pipeline
from faceanon.commands._run import quiet_pictures
from faceanon.commands._typed import typed
from faceanon.errors import UserError

NEEDED = ("gradio", "gradio_image_annotation", "zxcvbn")


@dataclass(frozen=True)
class WebOptions:
    """What is served, and to whom.

    Args:
        model: Folder, shipped name or .ckpt; None for the model that ships.
        device: Where it computes.
        host: Address to listen on.
        port: Port; 0 for the first free one.
        max_upload: Largest file in MB.
        rate: Pictures a minute for each client.
    """

    model: str | None
    device: str
    host: str
    port: int
    max_upload: int
    rate: int

    @property
    def engine(self) -> None:
        """None: whatever is sooner done."""

    @property
    def provider(self) -> None:
        """None: the CPU."""

    @property
    def shared(self) -> bool:
        """Whether several processes work at once: a page has one."""
        return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("--model", metavar="PATH", help=MODEL_HELP)
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, for this machine alone)"
    )
    parser.add_argument("--port", type=int, default=0, help="port (default: 0, the first free one from 7860 on)")
    parser.add_argument("--max-upload", type=int, default=200, metavar="MB", help="largest file (default: 200)")
    parser.add_argument(
        "--rate", type=int, default=20, metavar="N", help="pictures a minute for each client (default: 20)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl+C.

    Raises:
        UserError: If an argument or the model is unusable, or the extra `web` is missing.
    """
    options = typed(WebOptions, args)
    _check(options)
    quiet_pictures()
    print("faceanon: loading the model and the page ...", file=sys.stderr, flush=True)
    # Many pictures may come.
    pipeline = load_pipeline(options, photos=MANY)
    # Here: what it imports comes with the extra `web`, whose absence `_check` has named by now.
    from faceanon.web.server import WebSettings, serving

    if not _local(options.host):
        print(
            f"faceanon: warning: listening on {options.host}: everybody who reaches this machine can use the page, and "
            "pictures and passwords travel unencrypted",
            file=sys.stderr,
        )
    # An event rather than KeyboardInterrupt: SIGTERM then closes the page and removes its folder just as Ctrl+C does.
    stop = threading.Event()
    settings = WebSettings(options.host, options.port, options.max_upload, options.rate)
    with serving(pipeline, settings) as address:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stop.set())
        print(f"faceanon: the page is at {address} (Ctrl+C ends it)", flush=True)
        while not stop.wait(1):  # in pieces, so that signals are seen on every system
            pass
    return 0


def _check(options: WebOptions) -> None:
    missing = []
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            missing.append(name)
    if missing:
        raise UserError(f"the web page needs {' and '.join(missing)}: pip install 'faceanon[web]'")
    if not 0 <= options.port <= 65535:
        raise UserError(f"--port is {options.port}; give 0 for the first free one, or 1 to 65535")
    for name, value in (("--max-upload", options.max_upload), ("--rate", options.rate)):
        if value < 1:
            raise UserError(f"{name} is {value}; give 1 or more")


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # Of names, this one alone is surely this machine.
        return host == "localhost"
