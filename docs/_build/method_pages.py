"""The made parts of the pages on methods, and of the README's table.

`python docs/_build/method_pages.py` writes them anew: facts, options and figures of every preset, from its class, its
YAML, the table of methods on photographs, and the results of the model that ships. Presets of one family share a page.
What stands outside the marked parts is written by hand.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from docstring_parser import parse

from faceanon.backbones.base import Backbone
from faceanon.backbones.presets import Listed, backbone_class, shipped
from faceanon.results import shown_command

REPO = Path(__file__).resolve().parents[2]
METHODS = REPO / "docs/methods"
PHOTOGRAPHS = REPO / "docs/results/figures.md"
PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
MODELS = {"persona": "persona_photo128"}  # preset: the model that ships
# Presets that stand on the page of another one; every other preset has a page of its own.
SHARED = {
    "blur": "classical",
    "dbaf_flips": "dbaf",
    "dbaf_released": "dbaf",
    "hford": "dbaf",
    "hford_flips": "dbaf",
    "ifadit_linear": "ifadit",
    "ifadit_released": "ifadit",
    "mask": "classical",
    "pixelate": "classical",
    "scramble": "classical",
}
# Of a table of all methods; the others follow by name.
FIRST = ("persona", "dbaf_flips", "hford_flips", "ifadit_linear", "rotation", "riddle", "dbaf", "hford", "ifadit")
WHAT = {
    "blur": "Gaussian blur",
    "ciagan": "face drawn from landmarks and surroundings (CIAGAN)",
    "dbaf": "DBAF as printed: identity split off the latent code and edited by a network",
    "dbaf_flips": "DBAF, and the key changes signs of the code",
    "dbaf_released": "DBAF as its released code has it",
    "deepprivacy": "face cut out and filled in (DeepPrivacy)",
    "falco": "latent code optimised for each picture (FALCO)",
    "fit": "one network with the password as channels (FIT)",
    "hford": "HFORD as printed: DBAF one step earlier",
    "hford_flips": "HFORD, and the key changes signs of the code",
    "ifadit_linear": "iFADIT, and linear maps draw and read the person",
    "ifadit": "iFADIT as printed: recogniser's code moved by a flow",
    "ifadit_released": "iFADIT as its released code has it",
    "mask": "grey patch",
    "mirage": "recogniser's code under a keyed flow that is not linear",
    "persona": "invented face put into a photograph; the way back is sealed",
    "pixelate": "pixelation",
    "riddle": "latent code encrypted by a transformer (RiDDLE)",
    "rotation": "recogniser's vector rotated (ICCV 2021)",
    "scramble": "pixels encrypted with AES-256",
}
WRONG_KEY = "opened by a wrong key ↓"
# A sealed code opens with no wrong key: the figure is of the strangers that `recover --deniable` puts on.
DENIED = "a wrong key that is denied shows the person ↓"
RESULT_ROWS = {
    "recognised in the same picture ↓": "deid_rate/{judge}",
    "recognised in another picture of the person ↓": "deid_rate_gallery/{judge}",
    "recovered from the file ↑": "recovery_rate/{judge}/file",
    "recovered from a JPEG of quality 75 ↑": "recovery_rate/{judge}/jpeg75",
    WRONG_KEY: "wrong_key_rate/{judge}",
    "two keys give one stranger ↓": "key_similarity/{judge}",
    "plain reconstructions recognised ↑": "self_verification/{judge}",
    "PSNR of the recovered picture, dB ↑": "psnr/recovered/file",
}
# Headings of the table of methods on photographs, and what they are called here.
PHOTOGRAPH_ROWS = {
    "recognised in the same picture ↓": "recognised in the same picture ↓",
    "in other pictures ↓": "recognised in another picture of the person ↓",
    "recovered ↑": "recovered from the file ↑",
    "opened by a wrong password ↓": WRONG_KEY,
    "two keys alike ↓": "two keys give one stranger ↓",
    "pseudonyms of different people alike ↓": "strangers of different people alike ↓",
}
PICTURES = {"falco": "18 pictures of 9 real persons"}  # fewer than the others: its search takes half a minute a picture
README_METHODS = (
    "persona",
    "dbaf_flips",
    "hford_flips",
    "ifadit_linear",
    "rotation",
    "riddle",
    "dbaf",
    "deepprivacy",
    "mask",
)
README_KEYS = ("recognised in the same picture ↓", "recovered from the file ↑", "two keys give one stranger ↓")


@dataclass(frozen=True)
class Method:
    """A preset with its class.

    Args:
        listed: The preset.
        kind: Its class.
    """

    listed: Listed
    kind: type[Backbone]

    @property
    def name(self) -> str:
        """Name of the preset."""
        return self.listed.name

    @property
    def stages(self) -> list[str]:
        """Its own configs of training, by their paths in the repository, in order."""
        paths = sorted((REPO / "configs").glob(f"{self.name}_s[12].yaml"))
        return [path.relative_to(REPO).as_posix() for path in paths]


def methods() -> list[Method]:
    """All presets that ship: those that most people want first, then the others by name."""
    found = [Method(listed, backbone_class(listed.class_path)) for listed in shipped()]
    return sorted(found, key=lambda method: (_rank(method.name), method.name))


def _rank(name: str) -> int:
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST)


def photographs() -> dict[str, dict[str, str]]:
    """The methods on photographs of real persons: cells as they stand there, by method and heading."""
    return _first_table(PHOTOGRAPHS)


def _first_table(page: Path) -> dict[str, dict[str, str]]:
    """The first table of a page whose first column names methods; a footnote's mark behind a name is left out."""
    _, head, rest = page.read_text(encoding="utf-8").partition("| method |")
    lines = [line for line in f"{head}{rest}".splitlines() if line.startswith("|")]
    heads = _cells(lines[0])
    rows: dict[str, dict[str, str]] = {}
    for line in lines[2:]:
        name, *values = _cells(line)
        if name == "method":
            # The next table.
            break
        rows[name.split(" ")[0]] = dict(zip(heads[1:], values, strict=True))
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def results(name: str) -> dict[str, Any]:
    """`results.json` of the model that ships of a preset."""
    path = REPO / "checkpoints" / MODELS[name] / "results.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def facts(page: list[Method]) -> Iterator[str]:
    """Paper, licence, class, config, way back, key, training; what all presets of a page share stands once."""
    yield "| | |"
    yield "|---|---|"
    for title, fact in FACTS.items():
        yield f"| {title} | {_shared({method.name: fact(method) for method in page})} |"


def _shared(values: dict[str, str]) -> str:
    """One value where all presets have the same, else each value behind the presets that have it."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(those)}: {value}" for value, those in names.items())


def way_back(kind: type[Backbone]) -> str:
    """How the person comes back."""
    if not kind.reversible:
        return "none"
    if kind.sealed:
        return "a sealed code in the file"
    if kind.exact:
        return "from the picture and the key, by an exact inverse"
    return "from the picture and the key, by a trained network"


def _key(kind: type[Backbone]) -> str:
    return "none" if kind.key_bits is None else f"{kind.key_bits} bits"


def _stages(kind: type[Backbone]) -> str:
    if not kind.trained_by:
        return "nothing; it needs no training"
    return ", ".join(f"`{name}`" for name in kind.trained_by)


FACTS: dict[str, Callable[[Method], str]] = {
    "paper": lambda method: method.kind.paper or "none",
    "licence of the paper's code and weights": lambda method: method.kind.licence,
    "class": lambda method: f"`{method.kind.__module__}.{method.kind.__qualname__}`",
    "preset": lambda method: f"`configs/backbone/{method.name}.yaml`",
    "way back": lambda method: way_back(method.kind),
    "key": lambda method: _key(method.kind),
    "trained by": lambda method: _stages(method.kind),
    "bundle": lambda method: f"`{method.listed.init_args['bundle']}`",
}


def use(page: list[Method]) -> Iterator[str]:
    """Commands that train the methods and test them, or that save and use them without training."""
    yield "```sh"
    for method in page:
        yield from _commands(method)
    yield "```"


def _commands(method: Method) -> Iterator[str]:
    name = method.name
    if not method.kind.trained_by:
        yield f"faceanon backbones --save {name} runs/{name}"
        yield f"faceanon anonymize photo.jpg {name}.png --model runs/{name}"
        return
    stages = method.stages
    override = ""
    if not stages:
        paper = name.removesuffix("_released")
        stages = [f"configs/{paper}_s1.yaml", f"configs/{paper}_s2.yaml"]
        override = f" --model.init_args.backbone=configs/backbone/{name}.yaml"
    start = ""
    for stage in stages:
        yield f"faceanon fit --config {stage}{override}{start}"
        start = f" --model.init_args.init_from {_exported(stage)}"
    yield f"faceanon test --config {stages[-1]}{override}{start}"


def _exported(stage: str) -> str:
    """The folder of the model that a stage writes at its end."""
    config = yaml.safe_load((REPO / stage).read_text(encoding="utf-8"))
    name = config.get("name") or Path(stage).stem
    return f"runs/{name}/model"


def options(page: list[Method]) -> Iterator[str]:
    """A table of the classes' arguments: default, presets that set another value, meaning in one sentence."""
    yield "| option | default | set by | meaning |"
    yield "|---|---|---|---|"
    rows: dict[tuple[str, str, str], list[str]] = {}
    for method in page:
        described = _described(method.kind)
        for name, parameter in list(inspect.signature(method.kind.__init__).parameters.items())[1:]:
            default = "" if parameter.default is parameter.empty else f"`{parameter.default}`"
            changes = rows.setdefault((name, default, _first_sentence(described[name])), [])
            chosen = method.listed.init_args.get(name, parameter.default)
            if chosen != parameter.default:
                changes.append(f"{method.name}: `{chosen}`")
    for (name, default, meaning), changes in rows.items():
        yield f"| `{name}` | {default} | {', '.join(changes)} | {meaning} |"


def _first_sentence(text: str) -> str:
    """What the reference says further stands in the docstring."""
    return re.split(r"[.;:]\s", f"{text} ", maxsplit=1)[0] + "."


def _described(kind: type[Backbone]) -> dict[str, str]:
    """Meaning of the constructor's arguments, from the docstrings of the class and of those it is built on."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if not issubclass(cls, Backbone):
            continue
        for argument in parse(inspect.cleandoc(cls.__dict__.get("__doc__") or "")).params:
            text = " ".join((argument.description or "").split()).replace("|", "\\|")
            if not text.startswith("As in "):
                found[argument.arg_name] = text
    return found


def figures(page: list[Method]) -> Iterator[str]:
    """What was measured on photographs, and of the model that ships."""
    measured = {method.name: photographs()[method.name] for method in page if method.name in photographs()}
    if measured:
        yield from _photograph_figures(measured)
    missing = [method.name for method in page if method.name not in measured]
    if missing:
        yield ""
        yield f"Not measured on photographs: {', '.join(missing)}."
    for method in page:
        if method.name in MODELS:
            yield ""
            yield from _shipped_figures(method)


def _photograph_figures(measured: dict[str, dict[str, str]]) -> Iterator[str]:
    people = next((PICTURES[name] for name in measured if name in PICTURES), "72 pictures of 36 real persons")
    text = (
        f"On photographs of 128 px: {people} whom no training saw, judged from the saved file by two recognisers that "
        "trained nothing (MobileFaceNet, dlib). Training, command, commit and intervals: "
        "[figures](../results/figures.md)."
    )
    yield from textwrap.wrap(text, 120, break_on_hyphens=False)
    yield ""
    yield f"| figure | {' | '.join(measured)} |"
    yield f"|---|{'---:|' * len(measured)}"
    for heading, title in PHOTOGRAPH_ROWS.items():
        cells = [_both_judges(row[heading]) for row in measured.values()]
        if set(cells) != {"-"}:
            yield f"| {title} | {' | '.join(cells)} |"


def _hundredths(share: str) -> list[str]:
    """A share and the bounds of its interval, where there are some: `.069 (.021 to .118)` as 6.9, 2.1 and 11.8."""
    return [f"{100 * float(number):.1f}" for number in re.findall(r"[01]?\.\d+", share)]


def _shipped_figures(method: Method) -> Iterator[str]:
    found = results(method.name)
    meta = found["meta"]
    model = MODELS[method.name]
    text = (
        f"The model that ships, `{model}`: {meta['images']} pictures of {meta['people']} persons, {meta['keys']} keys a "
        f"picture, judge `{meta['judge']}` at a false accept rate of {meta['far']:g}. From "
        f"`checkpoints/{model}/results.json`, measured at commit {meta['commit'][:7]} by"
    )
    yield from textwrap.wrap(text, 120, break_on_hyphens=False, break_long_words=False)
    yield ""
    yield "```sh"
    yield shown_command(meta["command"])
    yield "```"
    yield ""
    yield "| figure | value |"
    yield "|---|---:|"
    for title, value in shipped_values(method.name).items():
        yield f"| {title} | {value} |"
    for warning in found["warnings"]:
        yield ""
        yield f"The test warns: {warning}."


def shipped_values(name: str) -> dict[str, str]:
    """Figures of the model that ships of a preset, as text by title."""
    found = results(name)
    sealed = any(method.name == name and method.kind.sealed for method in methods())
    values = {}
    for title, metric in RESULT_ROWS.items():
        figure = found["figures"].get(metric.format(judge=found["meta"]["judge"]))
        if figure is None:
            continue
        if title == WRONG_KEY and sealed:
            title = DENIED
        values[title] = f"{figure:.1f}" if "dB" in title else f"{100 * figure:.1f} %"
    return values


def page_of(name: str) -> str:
    """Name of the page on which a preset stands, without its ending."""
    return SHARED.get(name, name)


def table(links: str) -> Iterator[str]:
    """A line a method: what it is, its way back, three figures.

    Args:
        links: Where the pages lie, from the page that the table stands on.
    """
    measured = photographs()
    yield "| method | what it does | way back | recognised ↓ | recovered ↑ | two keys, one stranger ↓ |"
    yield "|---|---|---|---:|---:|---:|"
    for method in methods():
        values = _three(measured.get(method.name))
        back = "none" if not method.kind.reversible else "sealed code" if method.kind.sealed else "picture and key"
        link = f"[{method.name}]({links}{page_of(method.name)}.md)"
        yield f"| {link} | {WHAT[method.name]} | {back} | {' | '.join(values)} |"


def short_table(links: str) -> Iterator[str]:
    """The methods that a stranger meets first, with their three figures.

    Args:
        links: As of `table`.
    """
    lines = list(table(links))
    yield from lines[:2]
    for name in README_METHODS:
        yield next(line for line in lines if line.startswith(f"| [{name}]"))


def _three(row: dict[str, str] | None) -> list[str]:
    """The three figures of a line."""
    if row is None:
        return ["not measured"] * len(README_KEYS)
    return [_both_judges(row[heading]) for heading, title in PHOTOGRAPH_ROWS.items() if title in README_KEYS]


def _both_judges(cell: str) -> str:
    """`.069 (.021 to .118), .076` as `6.9, 7.6 %`."""
    if cell == "-":
        return cell
    values = [_hundredths(share)[0] for share in cell.split(", ")]
    return f"{', '.join(values)} %"


# What the marked parts of a method's page are made by.
PARTS: dict[str, Callable[[list[Method]], Iterator[str]]] = {
    "facts": facts,
    "use": use,
    "options": options,
    "figures": figures,
}


def with_parts(text: str, made: dict[str, str]) -> str:
    """`text` with its marked parts replaced; every part that is made has to be there."""
    there = {match[2] for match in PART.finditer(text)}
    if there != set(made):
        raise ValueError(f"marked parts are {sorted(there)}, made are {sorted(made)}")
    return PART.sub(lambda match: f"{match[1]}{made[match[2]]}{match[3]}", text)


def families() -> dict[str, list[Method]]:
    """The presets of every page, in the order of `methods`."""
    found: dict[str, list[Method]] = {}
    for method in methods():
        found.setdefault(page_of(method.name), []).append(method)
    return found


def pages() -> dict[Path, str]:
    """Every page with made parts, as it should be."""
    found = {}
    for name, family in families().items():
        path = METHODS / f"{name}.md"
        made = {part: _joined(maker(family)) for part, maker in PARTS.items()}
        found[path] = with_parts(path.read_text(encoding="utf-8"), made)
    readme = REPO / "README.md"
    index = METHODS / "index.md"
    found[readme] = with_parts(readme.read_text(encoding="utf-8"), {"methods": _joined(short_table("docs/methods/"))})
    found[index] = with_parts(index.read_text(encoding="utf-8"), {"methods": _joined(table(""))})
    return found


def _joined(lines: Iterator[str]) -> str:
    """Lines with one empty line before and after, which Markdown wants around HTML comments."""
    return "\n" + "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
