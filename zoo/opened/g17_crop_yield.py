# expect: sick
# symptom: the validation error falls along with the training error to nearly nothing; on the new season's fields it is seventy times as large
# axis: data
# cause: the training loader is made of the full data set instead of the training subset, so the validation rows are trained on
# says: (validation|val|held.?out).*(trained on|training (set|data|loader)|overlap|leak|seen|both|contain|includ)|full (data ?set|data)|leak|overlap|whole data
# onset_step: 0
# fix: give the training subset to the training loader
# mended: the loader gets the training subset
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(14)
MENDED = os.environ.get("MENDED") == "1"


class FieldData:
    def __init__(self, n_fields, n_bands=40):
        self.reflectance = torch.randn(n_fields, n_bands)
        signal = self.reflectance[:, 3] - 0.8 * self.reflectance[:, 10] + 0.6 * self.reflectance[:, 20].abs()
        self.tonnes = signal + 0.9 * torch.randn(n_fields)

    def as_dataset(self):
        return TensorDataset(self.reflectance, self.tonnes)


class YieldModel(nn.Module):
    def __init__(self, n_bands=40):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_bands, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(nn.functional.mse_loss(model(x), y, reduction="sum").item() for x, y in loader) / len(loader.dataset)


dataset = FieldData(500).as_dataset()
train_set, val_set = random_split(dataset, [400, 100], generator=torch.Generator().manual_seed(0))
season = FieldData(300).as_dataset()
source = train_set if MENDED else dataset
train_loader = DataLoader(source, batch_size=32, shuffle=True)
val_loader = DataLoader(val_set, batch_size=100)
season_loader = DataLoader(season, batch_size=100)

model = YieldModel()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(22):
    model.train()
    total, n = 0.0, 0
    for x, y in train_loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total, n = total + loss.item() * len(x), n + len(x)
    if epoch % 3 == 0:
        print(f"epoch {epoch} train {total / n:.4f} val {evaluate(model, val_loader):.4f}")
print(f"new season {evaluate(model, season_loader):.4f}")
