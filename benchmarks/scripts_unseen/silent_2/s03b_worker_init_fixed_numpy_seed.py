# expect: sick
# fault: worker_init_fn gives each worker the same numpy seed
# onset_step: 0
# says: (?i)(worker|duplicat|same (sample|batch|seed|data|row|crop|augment|random)|identical|repeat)
# note: worker_init_fn seeds numpy with a constant for reproducibility, so map-style crops drawn with numpy are the same in each worker and each epoch.
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 42


def set_all_seeds(worker_id=0):
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@dataclass
class Config:
    epochs: int = 3
    batch: int = 24
    lr: float = 2e-3
    length: int = 64
    classes: int = 5


class RandomWindows(Dataset):
    """index is ignored: every item is a random window out of the long recording"""

    def __init__(self, cfg):
        self.cfg = cfg
        t = np.arange(40000)
        self.wave = np.stack([np.sin(t * (0.05 + 0.04 * k)) for k in range(cfg.classes)]).astype(np.float32)

    def __len__(self):
        return 960

    def __getitem__(self, _):
        c = np.random.randint(self.cfg.classes)
        s = np.random.randint(0, self.wave.shape[1] - self.cfg.length)
        noise = np.random.randn(self.cfg.length).astype(np.float32)
        return {"signal": self.wave[c, s : s + self.cfg.length][None] + noise[None], "target": c}


class Conv1dNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.c1 = nn.Conv1d(1, 16, 7, padding=3)
        self.c2 = nn.Conv1d(16, 32, 7, stride=2, padding=3)
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(F.relu(self.c2(F.relu(self.c1(x)))).amax(-1))


if __name__ == "__main__":
    cfg = Config()
    set_all_seeds()
    loader = DataLoader(RandomWindows(cfg), cfg.batch, num_workers=2, worker_init_fn=set_all_seeds)
    model = Conv1dNet(cfg.classes)
    optim = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for ep in range(cfg.epochs):
        losses = []
        for b in loader:
            loss = F.cross_entropy(model(b["signal"]), b["target"])
            optim.zero_grad()
            loss.backward()
            optim.step()
            losses.append(loss.item())
        print("epoch", ep, "loss", np.mean(losses))
