# expect: sick
# fault: evaluation with dropout and BatchNorm in train mode
# onset_step: 25
# says: (?i)(\beval\b|\beval\(|evaluation|train(ing)? mode|dropout|batch.?norm|validation.{0,40}train)
# note: score() runs under no_grad but never calls model.eval(): dropout falsifies the validation and BatchNorm takes in the statistics of the anomalous validation rows.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)
mix = torch.randn(4, 24)


def normal_rows(n):
    return torch.tanh(torch.randn(n, 4)) @ mix + 0.1 * torch.randn(n, 24)


class DetectorAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 6))
        self.up = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 24))

    def forward(self, x):
        return self.up(self.down(x))


@torch.no_grad()
def score(model, rows):
    err = (model(rows) - rows).pow(2).mean(1)
    return err


train_rows = normal_rows(1000)
val_good, val_bad = normal_rows(200), 6 * torch.randn(200, 24) + 3
model = DetectorAE()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(7):
    for rows in train_rows[torch.randperm(1000)].split(40):
        loss = nn.functional.mse_loss(model(rows), rows)
        opt.zero_grad()
        loss.backward()
        opt.step()
    good, bad = score(model, val_good), score(model, val_bad)
    print(f"epoch {epoch} loss {loss.item():.4f} final val {good.mean().item():.4f} anomalies {bad.mean().item():.2f}")
