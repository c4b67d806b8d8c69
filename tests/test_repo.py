"""What must hold for the repository as a whole."""

import inspect
import re
import subprocess
import tomllib
from pathlib import Path

import lightning as L
import pytest
import yaml

REPO = Path(__file__).resolve().parents[1]
MOST_WEIGHT_BYTES = 25_000_000
TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".cfg", ".json", ".html", ".j2", ".css", ""}
# Written in pieces, so that this file does not find itself.
FORBIDDEN = [
    re.compile(pattern)
    for pattern in (r"(?<![\w.])/(work|home|root|tmp|Users)" + r"/[\w.]", r"pypi\." + r"org|file:" + r"///")
]


def tracked():
    """Files that are, or would be, in a commit."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    return [REPO / name for name in listed.split("\0") if name and (REPO / name).is_file()]


def texts():
    return [path for path in tracked() if path.suffix in TEXT and path.name != "LICENSE"]


def test_no_machine_paths_and_no_registry_hosts():
    found = [
        f"{path.relative_to(REPO)}:{number}: {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for pattern in FORBIDDEN
        if pattern.search(line)
    ]
    assert found == []


def test_the_search_for_machine_paths_finds_them():
    assert FORBIDDEN[0].search("root: /" + "home/anna/photos")
    assert FORBIDDEN[1].search("https://pypi" + ".org/simple")
    assert not FORBIDDEN[0].search("runs/" + "tmp/x and src/" + "work/y")


def test_no_file_holds_both_sides_of_a_merge():
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [
        path.relative_to(REPO).as_posix() for path in texts() if marks.search(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("path", sorted((REPO / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_parses(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


@pytest.mark.parametrize("path", sorted((REPO / "configs" / "trainer").glob("*.yaml")), ids=lambda path: path.stem)
def test_trainer_configs_move_nothing_but_the_trainer(path):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert "trainer" in config
    assert set(config) <= {"trainer", "acceleration"}
    assert set(config["trainer"]) <= set(inspect.signature(L.Trainer).parameters)
    if config["trainer"].get("accelerator") != "gpu":
        # Classes are built by the command line's parser.
        plain = {key: value for key, value in config["trainer"].items() if key not in ("logger", "callbacks")}
        L.Trainer(**plain, logger=False, enable_checkpointing=False)


def test_constraints_are_plain_pins_that_fit_the_project():
    lines = [
        line
        for line in (REPO / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line[:1] not in ("#", "")
    ]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._!-]+", line)] == []
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["train"] + extras["dev"]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", line)[0]).lower() for line in wanted}
    assert names <= pinned


def test_shipped_weights_stay_small():
    weights = [path for path in tracked() if (REPO / "checkpoints") in path.parents]
    folders = {path.parent for path in weights}
    sizes = {folder.name: sum(path.stat().st_size for path in folder.iterdir()) for folder in folders}
    assert {name: size for name, size in sizes.items() if size > MOST_WEIGHT_BYTES} == {}
    assert [path.name for path in weights if path.suffix in (".pt", ".pth", ".ckpt", ".pkl", ".bin")] == []


def test_readme_commands_exist():
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", readme))
    assert {"demo", "test"} <= named <= targets
    for config in re.findall(r"\bconfigs/[\w/]+\.yaml", readme):
        assert (REPO / config).is_file(), f"README names {config}"


def test_links_between_documents_lead_somewhere():
    broken = [
        f"{page.relative_to(REPO)}: {target}"
        for page in tracked()
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def shown_paths(text):
    """Paths of this repository that a page names in backticks."""
    return re.findall(r"`((?:src|tests|docs|configs|examples|tools|benchmarks|checkpoints)/[\w./-]*)`", text)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_every_path_that_a_page_names_exists(page):
    paths = shown_paths((REPO / page).read_text(encoding="utf-8"))
    assert paths
    assert [path for path in paths if not (REPO / path).exists()] == []


def test_contributors_find_who_does_what():
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| I am the code that ... | I live in |\n|---|---|\n")
    rows = table.split("\n\n")[0].splitlines()
    assert len(rows) >= 20
    assert [row for row in rows if not shown_paths(row)] == []


def words(*pages):
    """How many words pages have; the bars and rules of a table are none."""
    return sum(len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))) for page in pages)


def newest_entry():
    """Words of the newest version's entry."""
    text = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    return len(text.split("\n## ")[1].split())


# What it is, how much there may be, and how it is counted: what grows beyond is cut, or the number is argued for.
BUDGETS = {
    "words of README": (900, lambda: words(REPO / "README.md")),
    "words of a method's page": (1200, lambda: max(words(page) for page in (REPO / "docs/methods").glob("*.md"))),
    "words of docs": (60_000, lambda: words(*(REPO / "docs").rglob("*.md"))),
    "words of the notebook": (40_000, lambda: words(*(REPO / "notebook").rglob("*.md"))),
    "words of the newest changes": (600, newest_entry),
    "bytes of tracked files": (45_000_000, lambda: sum(path.stat().st_size for path in tracked())),
    "configs": (85, lambda: len(list((REPO / "configs").rglob("*.yaml")))),
    "scripts in examples": (6, lambda: len(list((REPO / "examples").rglob("*.py")))),
    "lines of source": (67_540, lambda: sum(len(path.read_text().splitlines()) for path in SOURCE)),
}
SOURCE = sorted((REPO / "src").rglob("*.py"))


@pytest.mark.parametrize("what", BUDGETS)
def test_it_does_not_grow_back(what):
    most, count = BUDGETS[what]
    found = count()
    assert found <= most, f"{what}: {found}, {most} at most"


def test_licence_and_ci_are_there():
    assert "Apache License" in (REPO / "LICENSE").read_text(encoding="utf-8")
    assert "make test" in (REPO / ".ci" / "run").read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", str(REPO / ".ci" / "run")], check=True)
