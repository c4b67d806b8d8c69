"""What `acceleration:` does to a training. There is no GPU here: networks are compiled by `eager`, which needs none."""

import copy
import json
import math

import lightning as L
import pytest
import torch
import yaml
from stage_probes import REPO, checkpoint, fit, logged, losses, words

from bundles import NETWORKS
from faceanon.errors import UserError
from faceanon.networks.compiled import CompiledCall
from faceanon.networks.frozen import Frozen
from faceanon.optim import Ranger
from faceanon.stages import base
from faceanon.training.acceleration import Acceleration, fuse, lay_out
from faceanon.training.cli import run

TWO_BATCHES = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1")
ADVERSARIAL = {"weights__adversarial": 0.1, "r1_gamma": 1.0, "r1_interval": 1}
ALL = ("--acceleration.compile=[backbone,discriminator,frozen]", "--acceleration.backend=eager")


class Watch(L.Callback):
    """Which calls are compiled while a training runs, and whether all gradients are finite."""

    called: set[str]
    finite: list[bool]

    def on_train_start(self, trainer, pl_module):
        Watch.called, Watch.finite = set(), []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        found = [item.grad for group in optimizer.param_groups for item in group["params"] if item.grad is not None]
        Watch.finite.append(bool(found) and all(bool(item.isfinite().all()) for item in found))

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        (one,) = [item for item in trainer.callbacks if isinstance(item, Acceleration)]
        Watch.called |= {name for name, call in one.calls.items() if call.calls}


def equal_states(one, other):
    assert list(one) == list(other)
    return all(torch.equal(one[name], other[name]) for name in one)


def assert_same_course(one, other):
    """The same losses; not to the bit, since what only looks takes its pictures one by one where it is not compiled.

    The first batch agrees to rounding. Then Adam has moved every weight by its learning rate, to a side that rounding
    chooses where a gradient is next to nothing. How much that is depends on the processor: 0.0016 of a term that was
    0.006 on one with AVX-512, less than 0.001 on others.
    """
    assert set(one) == set(other)
    for name, (first, *later) in one.items():
        assert first == pytest.approx(other[name][0], rel=1e-4, abs=1e-5), name
        assert later == [pytest.approx(value, rel=0.05, abs=3e-3) for value in other[name][1:]], name


def leftovers(stage):
    return [
        name for name, part in stage.named_modules() if any(isinstance(v, CompiledCall) for v in vars(part).values())
    ]


@pytest.fixture(scope="module")
def plain(tiny_bundle, tmp_path_factory):
    """Two batches with R1 in both, as they are without acceleration."""
    out = tmp_path_factory.mktemp("plain")
    return fit("dbaf_s2", tiny_bundle, out, more=TWO_BATCHES, **ADVERSARIAL), out


def test_compiled_parts_leave_the_training_as_it_is_and_nothing_behind(plain, tiny_bundle, tmp_path, capsys):
    """The discriminator alone, to be quick: it trains, so with `eager` nothing may differ by a bit."""
    parts = ("--acceleration.compile=[discriminator]", "--acceleration.backend=eager")
    precision = torch.get_float32_matmul_precision()
    fast = fit("dbaf_s2", tiny_bundle, tmp_path, more=(*TWO_BATCHES, *parts), **ADVERSARIAL)
    assert logged(plain[1]) == logged(tmp_path)
    assert equal_states(plain[0].model.state_dict(), fast.model.state_dict())
    said = capsys.readouterr().out
    assert f"float32 products: {precision}" in said
    assert "compiled (eager): discriminator;" in said
    assert "Adam (not fused)" in said or "Ranger (not fused)" in said
    assert leftovers(fast.model) == []
    assert equal_states(checkpoint(plain[1])["state_dict"], checkpoint(tmp_path)["state_dict"])


def watched(config, bundle, out, more):
    """A training of any preset on the tiny bundle."""
    watch = {"class_path": "test_acceleration.Watch"}
    return run(["fit", *words(config, bundle, out, watch), *more])


@pytest.mark.slow
@pytest.mark.parametrize("config", ["pixels_s1", "dbaf_s2", "riddle_s2", "ifadit_s1"])
def test_everything_compiled_is_the_plain_training(tiny_bundle, tmp_path, config):
    three = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=3", "--trainer.limit_val_batches=1")
    three = (*three, "--trainer.precision=32-true")
    one = watched(config, tiny_bundle, tmp_path / "plain", three)
    other = watched(config, tiny_bundle, tmp_path / "fast", (*three, *ALL))
    assert_same_course(losses(tmp_path / "plain"), losses(tmp_path / "fast"))
    before, after = one.model.state_dict(), other.model.state_dict()
    assert list(before) == list(after)
    apart = [float((before[name].double() - after[name]).abs().mean()) for name in before]
    assert max(apart) < 1e-4
    # The bundle's networks are compiled after the batch that first used them.
    assert {name.split(".")[0] for name in Watch.called} >= {"backbone", "bundle"}
    assert "bundle.recogniser" in Watch.called
    assert leftovers(other.model) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_checkpoints_go_from_plain_to_compiled_and_back(tiny_bundle, tmp_path):
    one = ("--trainer.limit_train_batches=1", "--trainer.limit_val_batches=0")
    watched("dbaf_s2", tiny_bundle, tmp_path / "1", (*one, "--trainer.max_epochs=1"))
    (path,) = (tmp_path / "1").rglob("last.ckpt")
    fast = (*one, *ALL, "--acceleration.fused=true", "--trainer.max_epochs=2", f"--ckpt_path={path}")
    watched("dbaf_s2", tiny_bundle, tmp_path / "2", fast)
    (path,) = (tmp_path / "2").rglob("last.ckpt")
    back = watched("dbaf_s2", tiny_bundle, tmp_path / "3", (*one, "--trainer.max_epochs=3", f"--ckpt_path={path}"))
    assert back.trainer.current_epoch == 3
    assert all(value.isfinite().all() for value in back.model.state_dict().values())


def test_cuda_graphs_without_a_gpu_are_refused(tiny_bundle, tmp_path):
    graphs = ("--acceleration.compile=[discriminator]", "--acceleration.cuda_graphs=true")
    with pytest.raises(UserError, match=r"cuda_graphs needs a GPU, and this training runs on cpu"):
        fit("dbaf_s2", tiny_bundle, tmp_path, more=(*TWO_BATCHES, *graphs))


@pytest.mark.parametrize("settings", [{}, {"compile": ["backbone"], "backend": "eager"}])
def test_cuda_graphs_of_nothing_are_refused(settings):
    with pytest.raises(UserError, match="cuda_graphs need compile"):
        Acceleration(cuda_graphs=True, **settings)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_fused_optimizer_goes_on_where_the_plain_one_was(kind):
    def train(fused):
        parameter = torch.nn.Parameter(torch.arange(6.0))
        optimizer = kind([parameter], lr=0.1)
        for number in range(6):
            if fused and number == 3:
                assert fuse(optimizer)
            parameter.grad = (parameter.detach() - 2).clone()
            optimizer.step()
        return parameter.detach(), optimizer

    (one, _), (other, optimizer) = train(False), train(True)
    torch.testing.assert_close(one, other)
    assert all(group["fused"] for group in optimizer.param_groups)


@pytest.mark.parametrize("fast", [False, True])
def test_a_fused_optimizer_takes_state_of_another_layout(fast):
    torch.manual_seed(0)
    net, image = torch.nn.Conv2d(3, 4, 3), torch.rand(2, 3, 8, 8)

    def stepped(network, optimizer):
        network(image).square().mean().backward()
        optimizer.step()
        return network.weight.detach().clone()

    former = torch.optim.Adam(net.parameters(), lr=0.01)
    stepped(net, former)
    other = torch.nn.Conv2d(3, 4, 3)
    (net if not fast else other).to(memory_format=torch.channels_last)
    other.load_state_dict(net.state_dict())
    later = torch.optim.Adam(other.parameters(), lr=0.01)
    later.load_state_dict(copy.deepcopy(former.state_dict()))
    assert fuse(later)
    net.zero_grad()
    torch.testing.assert_close(stepped(other, later), stepped(net, former), rtol=1e-5, atol=1e-7)


def test_an_optimizer_without_a_fused_form_stays_as_it_is():
    optimizer = Ranger([torch.nn.Parameter(torch.ones(2))])
    before = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
    assert not fuse(optimizer)
    assert before == {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}


def test_layouts_change_no_value():
    net = torch.nn.ModuleDict({"own": torch.nn.Conv2d(3, 5, 3), "frozen": Frozen(torch.nn.Conv2d(3, 5, 3))})
    net.shared = torch.nn.Parameter(torch.randn(1, 5, 3, 3, 3))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    lay_out(net)
    assert equal_states(before, net.state_dict())
    for weight in (net["own"].weight, net["frozen"].net.weight, net.shared[0]):
        assert weight.is_contiguous(memory_format=torch.channels_last)


def test_float32_precision_is_set_for_the_training_alone():
    before = torch.get_float32_matmul_precision()
    one = Acceleration(float32_matmul="high")
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    one.setup(trainer, torch.nn.Linear(1, 1), "fit")
    assert torch.get_float32_matmul_precision() == "high"
    one.teardown(trainer, torch.nn.Linear(1, 1), "fit")
    assert torch.get_float32_matmul_precision() == before
    one.setup(trainer, torch.nn.Linear(1, 1), "test")
    assert torch.get_float32_matmul_precision() == before


def test_the_config_names_settings_that_exist():
    written = yaml.safe_load((REPO / "configs/trainer/gpu_fast.yaml").read_text())
    one = Acceleration(**written["acceleration"])
    assert one.changes
    assert set(one.parts) == {"backbone", "discriminator", "frozen"}


@pytest.mark.parametrize("half", [True, False])
def test_r1_is_computed_in_float32(tiny_bundle, tmp_path, monkeypatch, half):
    seen = []
    real = base.r1_penalty

    def watched(discriminator, image):
        seen.append((torch.is_autocast_enabled("cpu"), real(discriminator, image).dtype))
        return real(discriminator, image)

    monkeypatch.setattr(base, "r1_penalty", watched)
    more = (*TWO_BATCHES, f"--trainer.precision={'bf16-mixed' if half else '32-true'}")
    fit("dbaf_s2", tiny_bundle, tmp_path, more=more, **ADVERSARIAL)
    assert seen == [(half, torch.float32)] * 2


# Persona needs a codec, which the tiny bundle has not; its own tests train it under bf16 (test_persona_training.py).
STAGES = sorted(
    path.stem for folder in ("configs/paper", "tests/configs") for path in (REPO / folder).glob("*_s[12].yaml")
)


@pytest.mark.slow
@pytest.mark.parametrize("config", STAGES)
def test_every_methods_step_is_finite_under_bf16(tiny_bundle, tmp_path, config):
    more = (*TWO_BATCHES, "--trainer.precision=bf16-mixed")
    watched(config, tiny_bundle, tmp_path, more)
    values = [value for column in losses(tmp_path).values() for value in column]
    assert values
    assert all(math.isfinite(value) for value in values)
    assert Watch.finite
    assert all(Watch.finite)


@pytest.mark.slow
def test_the_priors_step_is_finite_under_bf16_and_compiled(tiny_bundle, tmp_path):
    roles = ("generator", "encoder", "discriminator")
    keys = {f"model.init_args.{role}.init_args": NETWORKS[role][1] for role in roles}
    keys |= {"model.init_args.bundle": tiny_bundle, "model.init_args.adversarial_from": 0.0}
    keys |= {"model.init_args.export": tmp_path / "bundle", "data.init_args.batch_size": 8, "trainer.logger": "false"}
    keys |= {"trainer.default_root_dir": tmp_path, "trainer.precision": "bf16-mixed"}
    keys |= {"trainer.callbacks": json.dumps([{"class_path": "test_acceleration.Watch"}])}
    given = [f"--{key}={value}" for key, value in keys.items()]
    prior = ("--config", str(REPO / "configs/paper/prior.yaml"), "--data", "stage_probes.BlobFaces")
    run(["fit", *prior, *given, *TWO_BATCHES, *ALL])
    assert Watch.finite
    assert all(Watch.finite)
    assert Watch.called >= {"prior.generator.synthesis", "prior.encoder.with_features", "discriminator"}


@pytest.mark.parametrize(("bfloat16", "chosen"), [(False, "32-true"), (True, "bf16-mixed")])
def test_a_configs_bfloat16_is_float32_on_a_processor_without_it(
    tiny_bundle, tmp_path, monkeypatch, caplog, bfloat16, chosen
):
    monkeypatch.setattr("faceanon.training.precision.has_bfloat16", lambda: bfloat16)
    with caplog.at_level("INFO"):
        cli = fit("pixels_s1", tiny_bundle, tmp_path, more=TWO_BATCHES)
    assert cli.trainer.precision == chosen
    (saved,) = tmp_path.rglob("config.yaml")
    assert f"precision: {chosen}" in saved.read_text()
    assert ("no instructions for bfloat16" in caplog.text) is not bfloat16
