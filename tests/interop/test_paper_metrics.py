"""Networks of the papers' figures, from files in their public layouts: FID's Inception-v3, and AdaFace."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

import wild_files as files
from bundles import make_tiny_bundle
from faceanon.backbones.classical import Blur
from faceanon.interop.public.importing import import_files
from faceanon.interop.public.reading import read_public
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.features import FrechetDistance
from faceanon.metrics.saved import to_bytes
from faceanon.networks.inception import InceptionV3
from faceanon.studies.tables.names import Names
from faceanon.studies.tables.spec import load_table
from faceanon.testing import smooth_faces
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle


def test_fid_is_on_the_2048_numbers_of_an_imported_inception(tmp_path):
    state = files.seeded(InceptionV3).state_dict()
    torch.save(state, tmp_path / "pt_inception-2015-12-05-6726825d.pth")
    folder = make_tiny_bundle(tmp_path / "tiny")
    image = smooth_faces(64)
    batch = FaceBatch(image, torch.arange(4) // 2, torch.arange(4))
    without = Evaluation(Bundle(folder))
    without.update(batch, Blur(str(folder)))
    import_files([read_public(tmp_path / "pt_inception-2015-12-05-6726825d.pth")], str(folder))
    bundle = Bundle(folder)
    path = str(tmp_path / "pt_inception-2015-12-05-6726825d.pth")
    expected = FeatureExtractorInceptionV3("x", ["2048"], path)(to_bytes(image).permute(0, 3, 1, 2))[0]
    assert bundle.features(image).shape == (4, 2048)
    assert torch.equal(bundle.features(image), expected)
    evaluation = Evaluation(bundle)
    evaluation.update(batch, Blur(str(folder)))
    fid = FrechetDistance(2048)
    fid.update(expected, bundle.features(evaluation.samples["anonymized, key 1"]))
    assert evaluation.compute()["fid"] == float(fid.compute())
    assert evaluation.meta["weights"]["features"] == bundle.entry("features")["sha256"]
    found = without.compute()
    assert found["fid"] != evaluation.figures["fid"]
    assert without.meta["weights"]["features"] == bundle.entry("perceptual")["sha256"]


def test_a_table_says_what_stood_in_for_inception():
    column = next(column for column in load_table("dbaf-2").columns if column.id == "fid")
    assert Names("b", "judge", features="lpips_alex").remark(column) == (
        "FID: bundle b has no Inception-v3; lpips_alex stands in for it."
    )
    assert Names("b", "judge").remark(column) == ""


class Reference(nn.Module):
    """IR-50's unit as AdaFace's authors have it: pooling over one pixel where the width stays."""

    def __init__(self, before, width, stride):
        super().__init__()
        self.shortcut_layer = nn.MaxPool2d(1, stride)
        if before != width:
            self.shortcut_layer = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.res_layer = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.Conv2d(before, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return self.shortcut_layer(x) + self.res_layer(x)


class ReferenceTrunk(nn.Module):
    """AdaFace's network, narrow, with its 3, 4, 14 and 3 units."""

    def __init__(self):
        super().__init__()
        self.input_layer = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.PReLU(4))
        self.output_layer = nn.Sequential(
            nn.BatchNorm2d(12), nn.Dropout(0.4), nn.Flatten(), nn.Linear(12 * 49, 16), nn.BatchNorm1d(16, affine=False)
        )
        units = []
        for before, width, count in ((4, 4, 3), (4, 6, 4), (6, 8, 14), (8, 12, 3)):
            units += [Reference(before, width, 2), *(Reference(width, width, 1) for _ in range(count - 1))]
        self.body = nn.Sequential(*units)

    def forward(self, x):
        return F.normalize(self.output_layer(self.body(self.input_layer(x))))


def test_adaface_sees_blue_first_and_judges_beside_facenet(bring):
    net = files.seeded(ReferenceTrunk)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    training = {
        "state_dict": {**files.prefixed(net.state_dict(), "model."), "head.kernel": torch.ones(16, 9)},
        "epoch": 25,
        "optimizer_states": [{"state": {}}],
    }
    folder, lines = bring(files.facenet_content(10575), ("adaface_ir50_ms1mv2.ckpt", training))
    bundle = Bundle(folder)
    assert lines[-1].startswith("adaface_ir50_ms1mv2.ckpt (IR recogniser (AdaFace)) -> judge_adaface_ir50")
    assert bundle.entry("judge_adaface_ir50")["source"]["catalog"] == "adaface_ir50"
    face = torch.rand(2, 3, 112, 112, generator=torch.Generator().manual_seed(0)) * 2 - 1
    ours = bundle.build("judge_adaface_ir50").eval()(face)
    torch.testing.assert_close(ours, net(face[:, [2, 1, 0]]))
    assert not torch.allclose(ours, net(face), atol=1e-3)
    columns = load_table("ifadit-1").columns
    names = Names("b", "facenet_casia", "ir_se50", tuple(bundle.further_judges))
    assert {names.for_column(column) for column in columns if column.recogniser == "adaface_ir50"} == {"adaface_ir50"}
