# expect: healthy
# symptom: three linear layers in a row without an activation
# axis: none
# mended: none
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(65)
ROWS, COLS, RANK = 60, 50, 3
OBSERVED, STEPS = 0.35, 400


def ratings():
    truth = torch.randn(ROWS, RANK) @ torch.randn(RANK, COLS) / RANK**0.5
    seen = torch.rand(ROWS, COLS) < OBSERVED
    return truth, seen


class DeepMatrixFactorization(nn.Module):
    """A product of square matrices from a small start prefers low rank by itself
    (Arora et al. 2019), without a rank being set."""

    def __init__(self, depth=3, scale=0.35):
        super().__init__()
        self.embed = nn.Embedding(ROWS, COLS)
        self.mix = nn.Sequential(*[nn.Linear(COLS, COLS, bias=False) for _ in range(depth - 1)])
        nn.init.normal_(self.embed.weight, std=scale / COLS**0.5)
        for layer in self.mix:
            nn.init.orthogonal_(layer.weight, gain=scale)

    def forward(self, rows):
        return self.mix(self.embed(rows))


def effective_rank(m):
    p = torch.linalg.svdvals(m)
    p = p / p.sum()
    return (-(p * (p + 1e-12).log()).sum()).exp().item()


truth, seen = ratings()
model = DeepMatrixFactorization()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
everyone = torch.arange(ROWS)
for step in range(STEPS):
    rows = torch.randperm(ROWS)[:30]
    error = (model(rows) - truth[rows])[seen[rows]]
    loss = error.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == STEPS - 1:
        with torch.no_grad():
            full = model(everyone)
            hidden = (full - truth)[~seen].pow(2).mean().item()
        print(
            f"step {step} loss {loss.item():.5f} unseen entries {hidden:.4f} effective rank {effective_rank(full):.2f}"
        )
