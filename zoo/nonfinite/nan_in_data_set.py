"""One measurement of one sample of the data set is NaN; two workers, shuffled. No operation is to blame."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Houses(Dataset):
    def __init__(self):
        self.features = torch.rand(40, 8)
        self.prices = self.features.sum(1)
        self.features[30, 5] = float("nan")  # a missing measurement

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return {"features": self.features[index], "price": self.prices[index]}


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(Houses(), batch_size=4, shuffle=True, num_workers=2)

for batch in loader:
    loss = (model(batch["features"]).squeeze(1) - batch["price"]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
