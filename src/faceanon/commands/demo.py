"""Try anonymizing and recovering on a web page of this machine.

Drop a photo, type a password, look at the strangers, download the picture, and bring the persons back with the right
password or meet others with a wrong one. Pictures of drawn faces are there to click on. Ctrl+C ends it.

  faceanon demo
  faceanon demo --checkpoint runs/dbaf_s2/model --device cuda --port 8000

The page needs no internet and fetches nothing. It listens on this machine alone unless --host says otherwise; there is
no login and no encryption, so leave it that way unless everybody in reach may use it. Needs the extra `demo`.
Exit code: 0 ended by Ctrl+C, 1 failed, 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import signal
import sys
import threading

from faceanon.commands._files import MODEL_HELP, load_pipeline
from faceanon.commands._run import quiet_pictures
from faceanon.errors import UserError

NEEDED = ("gradio", "zxcvbn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("--checkpoint", "--model", dest="model", metavar="PATH", help=MODEL_HELP)
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, for this machine alone)"
    )
    parser.add_argument("--port", type=int, default=0, help="port (default: 0, the first free one from 7860 on)")
    parser.add_argument("--max-upload", type=int, default=20, metavar="MB", help="largest file (default: 20)")
    parser.add_argument(
        "--rate", type=int, default=20, metavar="N", help="pictures a minute for each client (default: 20)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl+C.

    Raises:
        UserError: If an argument or the model is unusable, or the extra `demo` is missing.
    """
    _check(args)
    quiet_pictures()
    print("faceanon: loading the model and the page ...", file=sys.stderr, flush=True)
    pipeline = load_pipeline(args.model, args.device)
    from faceanon.web.server import Settings, serving

    if not _local(args.host):
        print(
            f"faceanon: warning: listening on {args.host}: everybody who reaches this machine can use the page, and "
            "pictures and passwords travel unencrypted",
            file=sys.stderr,
        )
    stop = threading.Event()
    with serving(pipeline, Settings(args.host, args.port, args.max_upload, args.rate)) as address:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stop.set())
        print(f"faceanon: the page is at {address} (Ctrl+C ends it)", flush=True)
        while not stop.wait(1):  # in pieces, so that signals are seen on every system
            pass
    return 0


def _check(args: argparse.Namespace) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the web page needs {' and '.join(missing)}: pip install 'faceanon[demo]'")
    if not 0 <= args.port <= 65535:
        raise UserError(f"--port is {args.port}; give 0 for the first free one, or 1 to 65535")
    for name, value in (("--max-upload", args.max_upload), ("--rate", args.rate)):
        if value < 1:
            raise UserError(f"{name} is {value}; give 1 or more")


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
