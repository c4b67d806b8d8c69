from pathlib import Path

import pytest
import torch

import wild_files as files
from faceanon import cli
from faceanon.interop.public import importing
from faceanon.weights import catalog

MARKS = "<!-- table: faceanon.weights.catalog.markdown_table -->", "<!-- end of table -->"

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A checkpoints folder of its own."""
    from faceanon.weights import bundle, spec

    for module in (bundle, importing, catalog, spec):
        monkeypatch.setattr(module, "checkpoints", lambda: tmp_path / "checkpoints")
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(capsys, *words):
    code = cli.main(["weights", *map(str, words)])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_import_list_show_and_verify(home, capsys):
    # Its pictures are the sample faces.
    (home / "checkpoints/photo128").symlink_to(REPO / "checkpoints/photo128")
    torch.save(files.encoder_content(), home / "mystery.bin")
    code, out, _ = call(capsys, "import", "mystery.bin", "--as", "mine")
    assert code == 0
    assert "mystery.bin (e4e encoder) -> encoder" in out
    assert "mystery.bin (StyleGAN2 generator) -> generator" in out
    assert (home / "checkpoints/mine/bundle.yaml").is_file()
    code, out, err = call(capsys, "verify", "mine")
    assert code == 0, err
    assert "ok       pairing: the encoder was trained with this generator" in out
    assert "PSNR" in out
    code, out, _ = call(capsys, "show", "mine")
    assert code == 0
    assert "Encoder4Editing" in out
    assert "fingerprint" in out
    (home / "checkpoints/mine/README.md").unlink()
    victim = next((home / "checkpoints/mine").glob("generator-*.safetensors"))
    victim.write_bytes(b"")
    code, out, _ = call(capsys, "verify", "mine")
    assert code == 1
    assert "FAILED" in out


def test_show_a_file(home, capsys):
    torch.save(files.stylegan_content("training"), home / "x.pt")
    code, out, _ = call(capsys, "show", "x.pt")
    assert code == 0
    for part in (
        "StyleGAN2 generator",
        "StyleGAN2 discriminator",
        "fingerprint",
        "top-level keys: g, d, g_ema",
        "size=32",
    ):
        assert part in out


def test_list_tells_what_is_here(home, capsys):
    torch.save(files.recogniser_content(), home / "r.pth")
    assert call(capsys, "import", "r.pth", "--as", "judged")[0] == 0
    code, out, _ = call(capsys, "list", "--role", "recogniser")
    assert code == 0
    assert "model_ir_se50.pth" in out
    assert "a035c768259b" in out
    assert "judged" in out
    code, out, _ = call(capsys, "list")
    assert code == 0
    assert all(entry.files[0] in out for entry in catalog.catalog())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("import", "none.pt", "--as", "b"), "no such file: none.pt"),
        (("import", "junk.pt", "--as", "b"), "is not a readable checkpoint"),
        (("import", "plain.pt", "--as", "b"), "cannot name it; its keys are layer"),
        (("import", "plain.pt", "--as", "b ad"), "no name for a bundle"),
        (("verify", "b"), "no bundle 'b'"),
        (("show", "b"), "no bundle 'b'"),
        (("list", "--role", "cook"), "nothing known for role 'cook'"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(home, capsys, words, message):
    (home / "junk.pt").write_bytes(b"junk")
    torch.save({"layer": torch.zeros(1)}, home / "plain.pt")
    code, out, err = call(capsys, *words)
    assert code == 2
    assert err.startswith("faceanon: ")
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert list((home / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("action", ["list", "import", "verify", "show"])
def test_help_teaches_with_an_example(capsys, action):
    with pytest.raises(SystemExit) as caught:
        cli.main(["weights", action, "--help"])
    assert caught.value.code == 0
    assert f"    faceanon weights {action}" in capsys.readouterr().out


def test_the_licence_table_of_the_guide_is_the_catalogs(repo):
    text = (repo / "docs/how-to/bring-your-own-networks.md").read_text(encoding="utf-8")
    table = text.split(MARKS[0])[1].split(MARKS[1])[0].strip()
    assert table == catalog.markdown_table()
