"""Spectra are kept by their number in the file, and each of eight files counts from 0."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)

KINDS = 6
shapes = torch.randn(KINDS, 40)


class Spectra(Dataset):
    def __init__(self, files: int, rows: int) -> None:
        self.kinds = torch.randint(KINDS, (files, rows))
        self.raw = shapes[self.kinds] + 0.7 * torch.randn(files, rows, 40)
        self.ready: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return self.kinds.numel()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        file, number = divmod(index, self.kinds.shape[1])
        if number not in self.ready:  # <- bites
            spectrum = self.raw[file, number]
            self.ready[number] = (spectrum - spectrum.mean()) / spectrum.std()
        return self.ready[number], self.kinds[file, number]


loader = DataLoader(Spectra(8, 60), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, KINDS))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(1, 13):
    for spectra, kinds in loader:
        loss = nn.functional.cross_entropy(model(spectra), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
