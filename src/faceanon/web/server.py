"""Serve the page from this machine alone, out of a folder that vanishes with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import UserError
from faceanon.photo.party import photo_party
from faceanon.pipeline.photo import Pipeline
from faceanon.web.desk import Desk, methods
from faceanon.web.limits import RateLimit, UploadGate
from faceanon.web.strength import guess_rate

if TYPE_CHECKING:
    from gradio import Blocks

UPLOADS_A_MINUTE = 30
WAITING = 20  # visitors in the queue; further ones are told that it is full


@dataclass(frozen=True)
class WebSettings:
    """How the page is served.

    Args:
        host: Address to listen on.
        port: Port; 0 for the first free one from 7860 on.
        megabytes: Largest upload.
        rate: Pictures a minute for each client.
    """

    host: str = "127.0.0.1"
    port: int = 0
    megabytes: int = 200
    rate: int = 20


@contextmanager
def serving(pipeline: Pipeline, settings: WebSettings) -> Iterator[str]:
    """Serve the page while the context is open; gives its address.

    Raises:
        UserError: If host or port cannot be listened on.
    """
    with tempfile.TemporaryDirectory(prefix="faceanon-demo-") as name:
        folder = Path(name)
        _tame(folder / "uploads")
        from faceanon.web.page import Look, build_page  # here: Gradio reads its settings on import

        (folder / "results").mkdir()
        desk = Desk(methods(pipeline), folder / "results", RateLimit(settings.rate, 60))
        look = Look(guess_rate(), f"{settings.megabytes} MB", draw_examples(folder / "examples"))
        page = build_page(desk, look).queue(max_size=WAITING, api_open=False)
        address = _launch(page, settings)
        try:
            yield address
        finally:
            page.close(verbose=False)


def _launch(page: Blocks, settings: WebSettings) -> str:
    from faceanon.web.page import STYLE, theme

    try:
        _, address, _ = page.launch(
            server_name=settings.host,
            # None lets Gradio take the first free one from 7860 on.
            server_port=settings.port or None,
            max_file_size=f"{settings.megabytes}mb",
            # FastAPI's pages of documentation would load their scripts from elsewhere.
            app_kwargs={"middleware": [_gate()], "docs_url": None, "redoc_url": None, "openapi_url": None},
            theme=theme(),
            css_paths=STYLE,
            footer_links=[],
            run_history=False,  # it would keep inputs, passwords too, in the browser
            share=False,
            show_error=False,
            inbrowser=False,
            ssr_mode=False,
            mcp_server=False,
            enable_monitoring=False,
            pwa=False,
            num_workers=0,
            quiet=True,
            # `launch` then returns at once, and the caller of `serving` decides how long the page is served.
            prevent_thread_lock=True,
        )
    except OSError as error:
        where = f"{settings.host}:{settings.port or '7860 to 7959'}"
        raise UserError(f"cannot listen on {where}; give another --port, or --host as this machine has it") from error
    return str(address)


def draw_examples(folder: Path) -> list[Path]:
    """Pictures in `folder`, which is made, for visitors who have none at hand."""
    folder.mkdir(parents=True)
    photo_party().save(folder / "three_people_who_do_not_exist.png")
    return [folder / "three_people_who_do_not_exist.png"]


def _tame(uploads: Path) -> None:
    """Gradio without reports home, and with its uploads in our folder."""
    os.environ |= {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": str(uploads),
        "GRADIO_RUN_HISTORY": "False",
        "GRADIO_SHARE": "False",
        "HF_HUB_OFFLINE": "1",
    }
    # Whoever uses Gradio otherwise may have these set: they would open other folders, or another address.
    for name in ("GRADIO_ALLOWED_PATHS", "GRADIO_ROOT_PATH", "GRADIO_SERVER_PORT", "GRADIO_SERVER_NAME"):
        os.environ.pop(name, None)


def _gate() -> object:
    from starlette.middleware import Middleware

    return Middleware(UploadGate, limit=RateLimit(UPLOADS_A_MINUTE, 60))
