"""The shipped recogniser of photographs: parity with the published network, and what it tells apart."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def bundle():
    return Bundle("photo128")


def as_tensor(pixels):
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


@torch.no_grad()
def test_the_shipped_weights_give_the_published_networks_embeddings(bundle, shared):
    with np.load(shared / "testbed/golden/recognition.npz") as golden:
        crops = as_tensor(golden["crops_rgb"])
        wanted = torch.from_numpy(golden["emb_mobileface_v2"])
    found = bundle.build("recogniser").eval()(crops)
    error = (found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert error < 1e-4


@torch.no_grad()
def test_it_tells_aligned_faces_of_one_person_from_those_of_another(bundle, shared):
    folder = shared / "photofaces"
    by_person = {}
    with (folder / "manifest.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["source"] == "openpeople":
                by_person.setdefault(row["identity"], []).append(folder / "aligned256" / row["file"])
    pictures = []
    label = []
    for number, person in enumerate(sorted(by_person)):
        for path in by_person[person][:6]:
            picture = Image.open(path).convert("RGB").resize((128, 128), Image.Resampling.BOX)
            pictures.append(np.array(picture))
            label.append(number)
    embedding = bundle.recogniser(as_tensor(np.stack(pictures)))
    cosine = embedding @ embedding.T
    labels = torch.tensor(label)
    same = labels[:, None] == labels
    first, second = torch.triu_indices(len(label), len(label), 1)
    one_person = cosine[first, second][same[first, second]]
    two_persons = cosine[first, second][~same[first, second]]
    # The share of pairs of one person that are more alike than 95 % of the pairs of two.
    assert (one_person > two_persons.quantile(0.95)).float().mean() > 0.8
