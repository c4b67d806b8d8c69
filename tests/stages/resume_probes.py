"""A small model that draws from every source of random numbers, and data that note what was asked of them."""

import random

import lightning as L
import numpy as np
import torch
from torch.utils.data import Dataset, DistributedSampler

from faceanon.data.loader import ResumableLoader

BATCHES = 5  # an epoch


class StopError(Exception):
    pass


class Noisy(L.LightningModule):
    """Python's, NumPy's and torch's global random numbers move its weights; `seen` is what it was fed."""

    def __init__(self, manual: bool = True, stop: int | None = None) -> None:
        super().__init__()
        self.automatic_optimization = not manual
        self.layer = torch.nn.Linear(3, 1)
        self.stop, self.seen = stop, []

    def training_step(self, batch, batch_idx):
        if self.stop == self.trainer.fit_loop.total_batch_idx:
            raise StopError
        self.seen.append(round(float(batch[0]) * BATCHES / 2))
        noise = random.random() + np.random.rand() + torch.rand(())
        loss = (self.layer(batch) * noise).square().mean()
        self.log("loss", loss.detach())
        if self.automatic_optimization:
            return loss
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        return None

    def validation_step(self, batch, batch_idx):
        self.log("val", self.layer(batch).mean())

    def configure_optimizers(self):
        first = torch.optim.Adam([self.layer.weight], 0.1)
        if not self.automatic_optimization:
            return [first, torch.optim.Adam([self.layer.bias], 0.1)]
        return [first], [{"scheduler": torch.optim.lr_scheduler.StepLR(first, 2, 0.5), "interval": "step"}]


class Numbers(Dataset):
    """Rows that hold their own number; keeps a record of what was asked for."""

    def __init__(self, asked):
        self.asked = asked

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        self.asked.append(index)
        return torch.full((3,), float(index)) / BATCHES * 2


class Rows(L.LightningDataModule):
    def __init__(self, workers: int = 0) -> None:
        super().__init__()
        self.asked, self.workers = [], workers

    def _loader(self, shuffle):
        data = Numbers(self.asked if shuffle else [])
        sampler = DistributedSampler(data, 1, 0, shuffle=shuffle, seed=3)
        return ResumableLoader(data, batch_size=None, sampler=sampler, num_workers=self.workers if shuffle else 0)

    def train_dataloader(self):
        return self._loader(True)

    def val_dataloader(self):
        return self._loader(False)
