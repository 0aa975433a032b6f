"""A decoder whose input is all ones. A code beside it selects the curve that it draws."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

KINDS, PLACES = 4, 16
curves = torch.randn(KINDS, PLACES).cumsum(1)
kinds = torch.randint(KINDS, (640,))
targets = curves[kinds] + 0.1 * torch.randn(640, PLACES)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(KINDS, 32)
        self.first = nn.Linear(PLACES, 32)
        self.last = nn.Linear(32, PLACES)

    def forward(self, start: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(start) * self.codes(kind)))


loader = DataLoader(TensorDataset(kinds, targets), batch_size=32, shuffle=True)
model = Decoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for epoch in range(1, 7):
    for codes, wanted in loader:
        loss = nn.functional.mse_loss(model(torch.ones(len(codes), PLACES), codes), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
