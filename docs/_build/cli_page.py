"""The page of all commands and options, from the parsers that the commands themselves use."""

from __future__ import annotations

import argparse
import importlib
import textwrap
from collections.abc import Iterator
from functools import partial
from unittest import mock

from faceanon.training import cli as training
from faceanon.cli import COMMANDS, TRAINING

WIDTH = 80
TRAIN_HELP = {
    "fit": "Train a stage.",
    "validate": "Figures of a checkpoint on the validation pictures.",
    "test": "All figures on held-out persons, as table, JSON and HTML page.",
    "predict": "Lightning's predict loop over the test pictures.",
}
HEAD = """# Commands and their options

Made from the code when this site is built; `faceanon COMMAND --help` prints the same. Exit codes, and where passwords
come from, are on [the page of the command line](cli.md).
"""


class _ParsersAreThereError(Exception):
    """Carries Lightning's parser out of its constructor, before anything is parsed."""


def options_page() -> str:
    """Markdown with a section for every command."""
    own = [line for name in COMMANDS for line in _section(_parser(name), 2)]
    return "\n".join([HEAD, *own, *_lightning()])


def _parser(name: str) -> argparse.ArgumentParser:
    module = importlib.import_module(f"faceanon.commands.{name}")
    parser = argparse.ArgumentParser(prog=f"faceanon {name}", description=module.__doc__)
    module.add_arguments(parser)
    return parser


def _section(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Heading, description, usage, options, and the same one level down for each command below this one."""
    parser.formatter_class = partial(argparse.HelpFormatter, width=WIDTH)
    usage = parser.format_usage().removeprefix("usage: ").replace("\n" + " " * len("usage: "), "\n")
    yield f"{'#' * level} `{parser.prog}`\n"
    yield from _prose(parser.description or "")
    yield f"```text\n{usage}```\n"
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _is_shown(action)]
        if actions:
            yield from _table(group, actions)
    for below in _below(parser):
        yield from _section(below, level + 1)


def _prose(text: str) -> Iterator[str]:
    """Paragraphs as they are, indented ones as commands."""
    for block in text.strip().split("\n\n"):
        indented = block.startswith(" ")
        yield f"```sh\n{textwrap.dedent(block)}\n```\n" if indented else f"{block}\n"


def _is_shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    return not hidden and action.help != argparse.SUPPRESS and not action.dest.endswith(".help")


def _below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _table(group: argparse._ArgumentGroup, actions: list[argparse.Action]) -> Iterator[str]:
    if group.title and group.title not in ("options", "positional arguments"):
        yield f"**{group.title[0].upper()}{group.title[1:]}**\n"
    if group.description:
        yield f"{group.description}\n"
    rows = [f"| {_name(action)} | {_meaning(action)} |" for action in actions]
    yield "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])


def _name(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices is not None and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    words = " ".join(value) if isinstance(value, tuple) else value.removeprefix("TRAINER.")
    takes_value = action.nargs != 0
    names = ", ".join(action.option_strings) or words
    return _cell(f"`{names}{' ' + words if takes_value and action.option_strings else ''}`")


def _meaning(action: argparse.Action) -> str:
    text = " ".join((action.help or "").split())
    if "%(default)s" in text:
        text = text.replace("%(default)s", str(action.default))
    return _cell(text.replace("%%", "%").replace("<", "&lt;"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _lightning() -> Iterator[str]:
    """Sections of fit, validate, test and predict; the options of the trainer, which all share, once."""
    parsers = _lightnings_parsers()
    for name in TRAINING:
        parser = parsers[name]
        yield f"## `faceanon {name}`\n"
        yield f"{TRAIN_HELP[name]} Settings of stage and data are arguments of [their classes](api/stages.md).\n"
        for group in parser._action_groups:
            actions = [action for action in group._group_actions if _is_shown(action) and action.option_strings]
            if actions and not (_is_trainers(actions) and name != TRAINING[0]):
                yield from _table(group, actions)


def _is_trainers(actions: list[argparse.Action]) -> bool:
    return any(action.dest.startswith("trainer.") for action in actions)


def _lightnings_parsers() -> dict[str, argparse.ArgumentParser]:
    def stop(cli: training.FaceAnonCLI, parser: argparse.ArgumentParser, args: object) -> None:
        raise _ParsersAreThereError(cli._subcommand_parsers)

    with mock.patch.object(training.FaceAnonCLI, "parse_arguments", stop):
        try:
            training.run([TRAINING[0]])
        except _ParsersAreThereError as caught:
            return dict(caught.args[0])
    raise RuntimeError("Lightning's command line no longer parses its arguments in parse_arguments")
