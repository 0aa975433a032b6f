# expect: sick
# symptom: the training loss falls to nearly zero at once, validation stays bad
# axis: data
# cause: WeightedRandomSampler gets one weight per class, not per row, so only the first few rows are ever drawn
# says: sampler.*(class|row|label|few|first|same)|(few|same|first|five|5).{0,30}(rows|samples|examples)
# onset_step: 0
# fix: index the class weights with the labels so that each row has its weight
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.set_num_threads(1)
torch.manual_seed(8)
MENDED = os.environ.get("MENDED") == "1"

CLASSES = ["ok", "bearing", "belt", "sensor", "motor"]
SHARE = [0.70, 0.12, 0.09, 0.05, 0.04]


def make_table(n, seed):
    """Machine telemetry aggregates (18 columns) and the fault type found at inspection."""
    layout = np.random.default_rng(77)
    centre = layout.normal(0, 1.0, size=(len(CLASSES), 18))
    skew = layout.normal(0, 0.25, size=(18, 18))
    rng = np.random.default_rng(seed)
    y = rng.choice(len(CLASSES), size=n, p=SHARE)
    z = centre[y] + rng.normal(0, 1.0, size=(n, 18))
    x = z + np.tanh(z @ skew)
    return x.astype(np.float32), y.astype(np.int64)


class TelemetryNet(nn.Module):
    def __init__(self, n_in, n_out, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, n_out),
        )

    def forward(self, x):
        return self.net(x)


def balanced_loader(x, y, batch_size):
    counts = torch.bincount(y, minlength=len(CLASSES)).float()
    weights = 1.0 / counts
    if MENDED:
        weights = weights[y]
    sampler = WeightedRandomSampler(weights.double(), num_samples=len(y), replacement=True)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, sampler=sampler)


@torch.no_grad()
def report(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    pred = logits.argmax(1)
    recalls = [(pred[y == c] == c).float().mean().item() for c in range(len(CLASSES))]
    return nn.functional.cross_entropy(logits, y).item(), float(np.mean(recalls)), recalls


def main():
    xtr, ytr = make_table(4000, seed=1)
    xva, yva = make_table(1500, seed=2)
    mu, sd = xtr.mean(0), xtr.std(0)
    xtr, xva = [torch.from_numpy((a - mu) / sd) for a in (xtr, xva)]
    ytr, yva = torch.from_numpy(ytr), torch.from_numpy(yva)

    loader = balanced_loader(xtr, ytr, batch_size=64)
    model = TelemetryNet(xtr.shape[1], len(CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    criterion = nn.CrossEntropyLoss()

    step = 0
    for epoch in range(5):
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        vloss, mrec, _ = report(model, xva, yva)
        print(f"epoch {epoch} val loss {vloss:.4f} macro recall {mrec:.3f}")
    vloss, mrec, recalls = report(model, xva, yva)
    for name, r in zip(CLASSES, recalls):
        print(f"  {name:8s} recall {r:.3f}")
    print(f"final loss {loss.item():.4f} val_loss {vloss:.4f} macro_recall {mrec:.3f}")


if __name__ == "__main__":
    main()
