"""What every test runs under: no network, no real argv, few threads, caches in a temporary folder."""

import ipaddress
import os
import socket
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]

# Files whose slow tests take minutes, the longest first.
LONGEST = (
    "test_full_scale.py",
    "test_docs_blocks.py",
    "test_zoo_photographs.py",
    "test_zoo.py",
    "test_plugin.py",
    "test_kill_resume.py",
    "test_gpu_report.py",
    "test_wheel.py",
)

os.environ["WANDB_MODE"] = "offline"
os.environ.setdefault("WANDB_SILENT", "true")


def pytest_collection_modifyitems(items):
    """Long files first: a worker gets whole files, and would be alone with one that came last."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


class NetworkBlockedError(RuntimeError):
    """A test tried to leave the machine."""


def _is_local(address: object) -> bool:
    if not isinstance(address, tuple):
        return True  # a path: Unix socket
    host = str(address[0]).split("%", 1)[0]
    if host in ("", "localhost", socket.gethostname()):
        return True
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return False
    return parsed.is_loopback or parsed.is_unspecified


@pytest.fixture(autouse=True)
def no_network(request, monkeypatch):
    """Let sockets reach this machine alone, unless the test is marked `network`."""
    if request.node.get_closest_marker("network"):
        return
    for name in ("connect", "connect_ex"):
        real = getattr(socket.socket, name)

        def guarded(self, address, real=real):
            if not _is_local(address):
                raise NetworkBlockedError(f"a test tried to reach {address}; mark it `network` or give it local data")
            return real(self, address)

        monkeypatch.setattr(socket.socket, name, guarded)


@pytest.fixture(autouse=True)
def clean_argv(monkeypatch):
    """LightningCLI warns when pytest's own arguments are in sys.argv (Lightning #18545)."""
    monkeypatch.setattr(sys, "argv", ["faceanon"])


@pytest.fixture(autouse=True)
def private_caches(tmp_path_factory, monkeypatch):
    """Caches that a test fills or reads are its own."""
    home = tmp_path_factory.mktemp("cache")
    for variable in ("TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(home))


@pytest.fixture(scope="session", autouse=True)
def few_threads():
    """One thread: on tiny tensors several mostly wait for each other, and results do not hang on the machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def repo():
    """The repository's root."""
    return REPO


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory):
    """A complete bundle of tiny untrained networks."""
    from bundles import make_tiny_bundle

    return make_tiny_bundle(tmp_path_factory.mktemp("tiny64"))


@pytest.fixture(scope="session")
def sealed_bundle(tmp_path_factory):
    """A bundle of tiny untrained networks with the codec of photographs."""
    from bundles import make_sealed_bundle

    return make_sealed_bundle(tmp_path_factory.mktemp("sealed64"))


@pytest.fixture(scope="session")
def few_clone(tmp_path_factory):
    """A clone that ships few pictures: commands on its `src` soon have them prepared and tested."""
    from few_pictures import cloning_few

    return cloning_few(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="session")
def shared():
    """The folder `shared` beside the repository: golden tensors and test photographs."""
    folder = REPO.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: golden tensors and test photographs are kept beside the repository")
    return folder


@pytest.fixture
def bring(tmp_path):
    """Save contents as files in public layouts and import them into one bundle."""
    import torch

    from faceanon.interop.public.importing import import_files
    from faceanon.interop.public.reading import read_public

    numbers = iter(range(100))

    def run(*contents, bundle="b", **options):
        paths = []
        for content in contents:
            name, content = content if isinstance(content, tuple) else (f"file{next(numbers)}.pt", content)
            torch.save(content, tmp_path / name)
            paths.append(tmp_path / name)
        return import_files([read_public(path) for path in paths], str(tmp_path / bundle), **options)

    return run
