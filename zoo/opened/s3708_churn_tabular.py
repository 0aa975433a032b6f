# expect: sick
# symptom: the restored best model scores on the test set as badly as the overfitted last epoch
# axis: harness
# cause: the best weights are a reference to the live state_dict, not a copy, so restoring them does nothing
# says: (state_?dict|best|checkpoint|snapshot).{0,80}(cop(y|ied)|clone|reference|alias|same tensor|live)|alias
# onset_step: 20
# fix: deep-copy the state_dict when it is the best so far
# mended: the script applies that change if the environment has MENDED=1
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(31)
MENDED = os.environ.get("MENDED") == "1"

CAT_SIZES = [12, 6, 4]


def make_customers(n, rng, effects):
    cats = np.stack([rng.integers(0, k, n) for k in CAT_SIZES], 1)
    nums = rng.standard_normal((n, 16))
    score = sum(e[cats[:, j]] for j, e in enumerate(effects))
    score = score + 1.1 * nums[:, 0] - 0.9 * nums[:, 1] + 0.8 * nums[:, 2] * nums[:, 3]
    churn = rng.random(n) < 1 / (1 + np.exp(-score))
    return (torch.tensor(cats), torch.tensor(nums, dtype=torch.float32), torch.tensor(churn, dtype=torch.float32))


class ChurnNet(nn.Module):
    def __init__(self, emb=6, hidden=128):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(k, emb) for k in CAT_SIZES)
        self.body = nn.Sequential(
            nn.Linear(emb * len(CAT_SIZES) + 16, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, cats, nums):
        parts = [e(cats[:, j]) for j, e in enumerate(self.emb)] + [nums]
        return self.body(torch.cat(parts, 1)).squeeze(1)


class BestKeeper:
    """Remembers the weights of the epoch with the lowest validation loss."""

    def __init__(self):
        self.loss, self.epoch, self.state = float("inf"), -1, None

    def update(self, loss, epoch, model):
        if loss < self.loss:
            self.loss, self.epoch = loss, epoch
            self.state = copy.deepcopy(model.state_dict()) if MENDED else model.state_dict()

    def restore(self, model):
        model.load_state_dict(self.state)
        return model


@torch.no_grad()
def score(model, data):
    model.eval()
    cats, nums, y = data
    out = model(cats, nums)
    model.train()
    acc = ((out > 0).float() == y).float().mean().item()
    return F.binary_cross_entropy_with_logits(out, y).item(), acc


def main():
    rng = np.random.default_rng(4)
    effects = [0.8 * rng.standard_normal(k) for k in CAT_SIZES]
    train = make_customers(640, rng, effects)
    valid = make_customers(500, rng, effects)
    test = make_customers(3000, rng, effects)
    loader = DataLoader(TensorDataset(*train), batch_size=32, shuffle=True)
    model = ChurnNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    keeper = BestKeeper()
    for epoch in range(20):
        running = 0.0
        for cats, nums, y in loader:
            loss = F.binary_cross_entropy_with_logits(model(cats, nums), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item() / len(loader)
        val_loss, val_acc = score(model, valid)
        keeper.update(val_loss, epoch, model)
        print(f"epoch {epoch:2d} train {running:.4f} val {val_loss:.4f} val acc {val_acc:.3f}")
    model = keeper.restore(model)
    val_loss, _ = score(model, valid)
    test_loss, test_acc = score(model, test)
    print(
        f"best epoch {keeper.epoch} (val {keeper.loss:.4f}), restored val {val_loss:.4f}, "
        f"test loss {test_loss:.4f} test acc {test_acc:.3f}"
    )


if __name__ == "__main__":
    main()
