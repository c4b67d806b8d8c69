"""The made parts of the pages on methods, and of the README's table.

`python docs/_build/method_pages.py` writes them anew: facts, options and figures of every preset, from its class, its
YAML, the tables of methods on photographs and on drawn faces, and the results of the models that ship. What stands
outside the marked parts is written by hand.
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

from docstring_parser import parse

from faceanon.backbones.base import Backbone
from faceanon.backbones.presets import Listed, backbone_class, shipped
from faceanon.results import shown_command

REPO = Path(__file__).resolve().parents[2]
METHODS = REPO / "docs/methods"
ZOO = REPO / "notebook/zoo.md"
PHOTOGRAPHS = REPO / "notebook/photo128-methods.md"
PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
MODELS = {"dbaf_keyed": "dbaf_synth64", "persona": "persona_photo128"}  # preset: the model that ships
UNTRAINED = ("ifadit_released",)  # has no training of its own, so the zoo leaves it out
# Of a table of all methods; the others follow by name.
FIRST = ("persona", "dbaf", "hford", "ifadit", "rotation", "dbaf_keyed", "riddle")
WHAT = {
    "blur": "Gaussian blur",
    "ciagan": "face drawn from landmarks and surroundings (CIAGAN)",
    "dbaf": "identity split off the latent code and edited by a network (DBAF)",
    "dbaf_keyed": "DBAF with a recogniser's code that the key turns",
    "dbaf_released": "DBAF as its released code has it",
    "deepprivacy": "face cut out and filled in (DeepPrivacy)",
    "falco": "latent code optimised for each picture (FALCO)",
    "fit": "one network with the password as channels (FIT)",
    "hford": "DBAF one step earlier (HFORD)",
    "ifadit": "recogniser's code moved by a flow (iFADIT)",
    "ifadit_released": "iFADIT as its released code has it",
    "mask": "grey patch",
    "mirage": "recogniser's code under a keyed flow that is not linear",
    "persona": "invented face put into a photograph; the way back is sealed",
    "pixelate": "pixelation",
    "riddle": "latent code encrypted by a transformer (RiDDLE)",
    "rotation": "recogniser's vector rotated (ICCV 2021)",
    "scramble": "pixels encrypted with AES-256",
}
ZOO_ROWS = {
    "recognised in the same picture ↓": "recognised, same picture ↓",
    "recognised in another picture of the person ↓": "other picture ↓",
    "recovered from the file ↑": "recovered from the file ↑",
    "PSNR of the recovered picture ↑": "PSNR recovered ↑",
    "opened by a wrong key ↓": "wrong key opens ↓",
    "two keys give one stranger ↓": "two keys alike ↓",
    "KID ↓": "KID ↓",
    "training, CPU minutes": "training, CPU min",
    "milliseconds a face": "ms a face",
    "parameters, millions": "parameters, M",
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
DRAWN_FACES = "²"
PICTURES = {"falco": "18 pictures of 9 real persons"}  # fewer than the others: its search takes half a minute a picture
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


def zoo() -> dict[str, dict[str, str]]:
    """All methods on drawn faces: cells as they stand there, by method and heading."""
    return _first_table(ZOO)


def photographs() -> dict[str, dict[str, str]]:
    """The methods on photographs of real persons: cells as they stand there, by method and heading."""
    return _first_table(PHOTOGRAPHS)


def _first_table(page: Path) -> dict[str, dict[str, str]]:
    """The first table of a page whose first column names methods; a footnote's mark behind a name is left out."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
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


def facts(method: Method) -> Iterator[str]:
    """Paper, licence, class, config, way back, key, training."""
    kind = method.kind
    yield "| | |"
    yield "|---|---|"
    yield f"| paper | {kind.paper or 'none'} |"
    yield f"| licence of the paper's code and weights | {kind.licence} |"
    yield f"| class | `{kind.__module__}.{kind.__qualname__}` |"
    yield f"| preset | `configs/backbone/{method.name}.yaml` |"
    yield f"| way back | {way_back(kind)} |"
    yield f"| key | {_key(kind)} |"
    yield f"| trained by | {_stages(kind)} |"
    yield f"| bundle | `{method.listed.init_args['bundle']}` |"


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


def use(method: Method) -> Iterator[str]:
    """Commands that train the method and test it, or that save and use one without training."""
    yield "```sh"
    if not method.kind.trained_by:
        yield f"faceanon backbones --save {method.name} runs/{method.name}"
        yield f"faceanon anonymize photo.jpg out.png --model runs/{method.name}"
        yield "```"
        return
    stages = method.stages
    override = ""
    name = method.name
    if not stages:
        name = method.name.removesuffix("_released")
        stages = [f"configs/{name}_s1.yaml", f"configs/{name}_s2.yaml"]
        override = f" --model.init_args.backbone=configs/backbone/{method.name}.yaml"
    start = ""
    for stage in stages:
        yield f"faceanon fit --config {stage}{override}{start}"
        start = f" --model.init_args.init_from runs/{Path(stage).stem}/model"
    last = Path(stages[-1]).stem
    yield f"faceanon test --config {stages[-1]}{override} --model.init_args.init_from runs/{last}/model"
    yield "```"


def options(method: Method) -> Iterator[str]:
    """A table of the class's arguments: default, what the preset sets, meaning."""
    described = _described(method.kind)
    yield "| option | default | this preset | meaning |"
    yield "|---|---|---|---|"
    for name, parameter in list(inspect.signature(method.kind.__init__).parameters.items())[1:]:
        default = "" if parameter.default is parameter.empty else f"`{parameter.default}`"
        chosen = method.listed.init_args.get(name, parameter.default)
        changed = f"`{chosen}`" if chosen != parameter.default else ""
        yield f"| `{name}` | {default} | {changed} | {described[name]} |"


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


def figures(method: Method) -> Iterator[str]:
    """What was measured: on photographs, of the model that ships, and beside all methods on drawn faces."""
    parts = []
    photographed = photographs().get(method.name)
    if photographed is not None:
        people = PICTURES.get(method.name, "72 pictures of 36 real persons")
        parts.append(_photograph_figures(photographed, people))
    if method.name in MODELS:
        parts.append(_shipped_figures(method))
    row = zoo().get(method.name)
    if row is not None:
        parts.append(_zoo_figures(row, bool(method.kind.trained_by)))
    if not parts:
        yield "None: the released code trains nothing, so the comparison of all methods leaves this preset out."
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from part


def _photograph_figures(row: dict[str, str], people: str) -> Iterator[str]:
    text = (
        f"On photographs of 128 px: {people} whom no training saw, judged from the saved file by "
        "two recognisers that trained nothing, with 95 % intervals where they are known. How it was trained, command "
        "and commit: [the methods on photographs](../results/log/photo128-methods.md)."
    )
    yield from _introduced(text, "MobileFaceNet", "dlib")
    for heading, title in PHOTOGRAPH_ROWS.items():
        if row[heading] != "-":
            first, second = row[heading].split(", ")
            yield f"| {title} | {_percent(first)} | {_percent(second)} |"


def _introduced(text: str, *columns: str) -> Iterator[str]:
    """A paragraph, and the head of a table of figures under it."""
    yield from textwrap.wrap(text, 120, break_on_hyphens=False)
    yield ""
    yield f"| figure | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * len(columns)}"


def _hundredths(share: str) -> list[str]:
    """A share and the bounds of its interval, where there are some: `.069 (.021 to .118)` as 6.9, 2.1 and 11.8."""
    return [f"{100 * float(number):.1f}" for number in re.findall(r"[01]?\.\d+", share)]


def _percent(share: str) -> str:
    """`.069 (.021 to .118)` as `6.9 % (2.1 to 11.8)`."""
    value, *bounds = _hundredths(share)
    if not bounds:
        return f"{value} %"
    low, high = bounds
    return f"{value} % ({low} to {high})"


def _zoo_figures(row: dict[str, str], trained: bool) -> Iterator[str]:
    start = "Without training, beside all other methods"
    if trained:
        start = "One short training, as long as that of every other method: 300 batches of 16 drawn faces, seed 0"
    text = (
        f"{start}. Drawn faces at 64 px, 200 persons never seen, judged from the saved file. Command, commit and what it "
        "says: [the zoo](../results/log/zoo.md)."
    )
    yield from _introduced(text, "value")
    for title, heading in ZOO_ROWS.items():
        if row[heading] != "-":
            yield f"| {title} | {row[heading]} |"


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


def table(links: str) -> Iterator[str]:
    """A line a method: what it is, its way back, three figures.

    Args:
        links: Where the pages lie, from the page that the table stands on.
    """
    drawn = zoo()
    photographed = photographs()
    yield "| method | what it does | way back | recognised ↓ | recovered ↑ | two keys, one stranger ↓ |"
    yield "|---|---|---|---:|---:|---:|"
    for method in methods():
        values = _three(method, drawn, photographed)
        back = "none" if not method.kind.reversible else "sealed code" if method.kind.sealed else "picture and key"
        yield f"| [{method.name}]({links}{method.name}.md) | {WHAT[method.name]} | {back} | {' | '.join(values)} |"


def _three(method: Method, drawn: dict[str, dict[str, str]], photographed: dict[str, dict[str, str]]) -> list[str]:
    """The three figures of a line: on photographs where they were measured there, else marked ones on drawn faces."""
    if method.name in UNTRAINED:
        return ["not measured"] * len(README_KEYS)
    if method.name in photographed:
        row = photographed[method.name]
        return [_both_judges(row[heading]) for heading, title in PHOTOGRAPH_ROWS.items() if title in README_KEYS]
    row = drawn[method.name]
    return [f"{row[ZOO_ROWS[key]]} {DRAWN_FACES}" for key in README_KEYS]


def _both_judges(cell: str) -> str:
    """`.069 (.021 to .118), .076` as `6.9, 7.6 %`."""
    if cell == "-":
        return cell
    values = [_hundredths(share)[0] for share in cell.split(", ")]
    return f"{', '.join(values)} %"


# What the marked parts of a method's page are made by.
PARTS: dict[str, Callable[[Method], Iterator[str]]] = {
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


def pages() -> dict[Path, str]:
    """Every page with made parts, as it should be."""
    found = {}
    for method in methods():
        path = METHODS / f"{method.name}.md"
        made = {name: _joined(maker(method)) for name, maker in PARTS.items()}
        found[path] = with_parts(path.read_text(encoding="utf-8"), made)
    for path, links in ((REPO / "README.md", "docs/methods/"), (METHODS / "index.md", "")):
        found[path] = with_parts(path.read_text(encoding="utf-8"), {"methods": _joined(table(links))})
    return found


def _joined(lines: Iterator[str]) -> str:
    """Lines with one empty line before and after, which Markdown wants around HTML comments."""
    return "\n" + "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
