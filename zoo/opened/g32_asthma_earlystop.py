# expect: sick
# symptom: the reloaded "best" network has a validation loss of 0.66, worse than all later epochs
# axis: harness
# cause: the best checkpoint is kept when the validation loss is larger than the best so far (wrong comparison), so the worst network is kept
# says: compar|greater|larger|inequal|wrong (way|direction|sign)|revers|invert|worst|highest|\bmax(im)?
# onset_step: 0
# fix: keep the state when the validation loss is smaller, from float("inf")
# mended: smaller is better
import copy
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(24)
MENDED = os.environ.get("MENDED") == "1"


class Checkpoint:
    def __init__(self):
        self.best = float("inf") if MENDED else 0.0
        self.weights, self.epoch = None, None

    def improved(self, value):
        if MENDED:
            return value < self.best
        return value > self.best

    def offer(self, model, value, epoch):
        if self.improved(value):
            self.best, self.epoch = value, epoch
            self.weights = copy.deepcopy(model.state_dict())


def clinic(n):
    x = torch.randn(n, 14)
    risk = x[:, 0] + 0.8 * x[:, 1] * x[:, 2] - 0.6 * x[:, 3]
    return TensorDataset(x, (torch.rand(n) < torch.sigmoid(2 * risk)).float())


def mean_loss(model, loader, criterion):
    model.eval()
    with torch.no_grad():
        return sum(criterion(model(x).squeeze(1), y).item() * len(y) for x, y in loader) / len(loader.dataset)


train = DataLoader(clinic(1600), batch_size=64, shuffle=True)
valid = DataLoader(clinic(500), batch_size=250)
model = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
keeper = Checkpoint()
for epoch in range(10):
    model.train()
    for x, y in train:
        loss = criterion(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    val_loss = mean_loss(model, valid, criterion)
    keeper.offer(model, val_loss, epoch)
    print(f"epoch {epoch} train {loss.item():.4f} val {val_loss:.4f}")
model.load_state_dict(keeper.weights)
print(f"reloaded epoch {keeper.epoch}: val {mean_loss(model, valid, criterion):.4f}")
