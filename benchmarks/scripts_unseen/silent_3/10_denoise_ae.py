# expect: sick
# fault: layers frozen by a name match that catches too much
# onset_step: 0
# says: (?i)(frozen|freez|requires_grad|not train|untrained|never (mov|train|updat))
# note: only the pretrained "enc.stem" should be frozen, but the test is `"enc" in name`; "enc" stands in every decoder name too ("dec_of_enc"), so only the last layer trains.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(9)


class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.ModuleDict({"stem": nn.Linear(64, 64), "mid": nn.Linear(64, 32), "code": nn.Linear(32, 8)})
        self.dec_of_enc = nn.ModuleDict({"up": nn.Linear(8, 32), "mid": nn.Linear(32, 64)})
        self.pixels = nn.Linear(64, 64)

    def forward(self, x):
        h = torch.relu(self.enc["stem"](x))
        z = self.enc["code"](torch.relu(self.enc["mid"](h)))
        h = torch.relu(self.dec_of_enc["up"](z))
        return self.pixels(torch.relu(self.dec_of_enc["mid"](h)))


basis = torch.randn(5, 64)


def batch(n):
    clean = torch.tanh(torch.randn(n, 5) @ basis)
    return clean + 0.3 * torch.randn_like(clean), clean


model = AE()
with torch.no_grad():
    nn.init.orthogonal_(model.enc["stem"].weight)
for name, p in model.named_parameters():
    if "enc" in name:
        p.requires_grad = False
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
for it in range(1, 221):
    noisy, clean = batch(64)
    loss = nn.functional.mse_loss(model(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 20 == 0:
        print(f"iter {it} loss {loss.item():.4f}")
with torch.no_grad():
    noisy, clean = batch(512)
    print("final mse", nn.functional.mse_loss(model(noisy), clean).item())
