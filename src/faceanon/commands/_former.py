"""What a command line of former versions is called today."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

REPORT_FLAGS = {
    "--table": "tables TABLE...",
    "--tables": "tables TABLE...",
    "--leaderboard": "leaderboard RESULTS_DIR...",
    "--occlusion": "occlusion --model MODEL ...",
    "--security": "security --model MODEL ...",
}
"""Flags of `faceanon report` that are reports of their own today."""

PAGE_OPTIONS = frozenset(
    {"--checkpoint", "--device", "--host", "--max-upload", "--model", "--port", "--rate", "--share"}
)
"""Options of the web page, which was `faceanon demo`."""

HAD_CHECKPOINT = frozenset({"anonymize", "recover", "export"})
"""Commands whose `--model` was `--checkpoint` too."""


def todays_name(words: Sequence[str]) -> str | None:
    """One line that names today's command, or None where the words are no former one.

    Args:
        words: Of the command line, behind `faceanon`.
    """
    if not words:
        return None
    name = words[0]
    options = []
    for word in words[1:]:
        # argparse takes `--option=value` as one word.
        options.append(word.partition("=")[0])
    if name == "quickstart":
        return "quickstart has a new name; use: faceanon demo ..."
    # Today's demo has none of these options, so they tell that the page was meant.
    if name == "demo" and PAGE_OPTIONS.intersection(options):
        return "the web page has a command of its own; use: faceanon web ..."
    if name in HAD_CHECKPOINT and "--checkpoint" in options:
        return f"--checkpoint has a new name; use: faceanon {name} ... --model MODEL"
    if name == "report":
        return _todays_report(words[1:], options)
    return None


def _todays_report(words: Sequence[str], options: Sequence[str]) -> str | None:
    # Here: the reports import their studies, which no other command has to wait for.
    from faceanon.commands.report import REPORTS

    if not words or words[0] in REPORTS:
        return None
    for option in options:
        if option in REPORT_FLAGS:
            return f"report {option} is a command of its own; use: faceanon report {REPORT_FLAGS[option]}"
    # Former versions compared results without a word for it: a path or one of these options came first.
    if options[0] in ("--out", "--across-protocols") or Path(words[0]).exists():
        return "to compare results has a command of its own; use: faceanon report compare RESULTS..."
    return None
