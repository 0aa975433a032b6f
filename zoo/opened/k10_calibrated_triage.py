# expect: healthy
# symptom: the class weights grow with the frequency of the class
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.set_num_threads(1)
torch.manual_seed(77)
PRIOR = torch.tensor([0.8, 0.15, 0.05])
CENTRES = 0.8 * torch.randn(3, 12)


def visits(n):
    y = torch.multinomial(PRIOR, n, replacement=True)
    return CENTRES[y] + torch.randn(n, 12), y


class Triage(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))

    def forward(self, x):
        return self.net(x)


x, y = visits(4000)
x_val, y_val = visits(1500)
freq = torch.bincount(y, minlength=3).float() / len(y)

# Every batch holds as many urgent visits as routine ones. The probabilities are
# shown to nurses and have to be those of the ward, so the loss undoes the
# sampling: each class counts by its share in the ward over its share in a batch.
sampler = WeightedRandomSampler((1 / freq)[y], num_samples=len(y), replacement=True)
loader = DataLoader(TensorDataset(x, y), batch_size=96, sampler=sampler)
weights = freq / (1 / 3)

model = Triage()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    model.train()
    total = 0.0
    for xb, yb in loader:
        per_row = F.cross_entropy(model(xb), yb, weight=weights, reduction="none")
        loss = per_row.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        p = model(x_val).softmax(-1)
        nll = F.nll_loss(p.log(), y_val)
    said = " ".join(f"{v:.3f}" for v in p.mean(0))
    true = " ".join(f"{(y_val == c).float().mean():.3f}" for c in range(3))
    print(f"epoch {epoch} loss {total / len(loader):.4f} val nll {nll:.4f} mean probability {said} (share {true})")
