"""What MkDocs calls while it builds the site: pages that are made from the code, and the navigation's folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cli_page import options_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OPTIONS = "reference/options.md"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(?:#[^)]*)?\)")
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/` in the navigation by the folder's pages that are named nowhere else, sorted by title."""
    docs, nav = Path(config.docs_dir), config.nav or []
    named = {entry for entry in _leaves(nav) if not entry.endswith("/")}
    config.nav = _expanded(nav, docs, named)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of all options, made from the commands' own parsers."""
    files.append(File.generated(config, OPTIONS, content=options_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name files outside docs/ where a page links to them: on the site, such a link would lead nowhere."""
    docs = Path(config.docs_dir).resolve()
    here = (docs / page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        text, target = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (here / target).resolve()
        if path.is_relative_to(docs) or not path.exists():
            return match[0]
        return f"{text} (`{path.relative_to(docs.parent).as_posix()}`)"

    return LINK.sub(rewritten, markdown)


def _leaves(nav: Any) -> list[str]:  # noqa: ANN401 - YAML
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [leaf for entry in entries for leaf in _leaves(entry)]


def _expanded(nav: list[Any], docs: Path, named: set[str]) -> list[Any]:
    result: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/"):
            pages = [page.relative_to(docs).as_posix() for page in sorted((docs / entry).glob("*.md"), key=_title)]
            result += [page for page in pages if page not in named]
        elif isinstance(entry, dict):
            result += [{k: _expanded(v, docs, named) if isinstance(v, list) else v for k, v in entry.items()}]
        else:
            result.append(entry)
    return result


def _title(page: Path) -> str:
    found = HEADING.search(page.read_text(encoding="utf-8"))
    return found[1].lower() if found else page.stem
