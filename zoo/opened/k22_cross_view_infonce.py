# expect: healthy
# symptom: no diagonal is masked in the contrastive loss
# axis: none
# mended: none
import copy
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

torch.set_num_threads(1)
torch.manual_seed(58)
TEMPERATURE, MOMENTUM = 0.2, 0.98


def scenes(n, mix):
    content = torch.randn(n, 10)
    style = lambda: torch.randn(n, 20)
    return [torch.cat([content, style()], 1) @ mix for _ in range(2)]


def projector(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, n_out))


class MoCo(nn.Module):
    """Queries of one view against the keys of the other view in the same batch (v3)."""

    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(40, 96), nn.ReLU(), projector(96, 24))
        self.momentum_base = copy.deepcopy(self.base).requires_grad_(False)
        self.predictor = projector(24, 24)

    @torch.no_grad()
    def follow(self):
        for k, q in zip(self.momentum_base.parameters(), self.base.parameters()):
            k.mul_(MOMENTUM).add_(q, alpha=1 - MOMENTUM)

    def contrast(self, q, k):
        q, k = normalize(q, dim=1), normalize(k, dim=1)
        logits = q @ k.T / TEMPERATURE
        labels = torch.arange(len(q))
        return cross_entropy(logits, labels) * 2 * TEMPERATURE, (logits.argmax(1) == labels).float().mean()

    def forward(self, x1, x2):
        q1, q2 = self.predictor(self.base(x1)), self.predictor(self.base(x2))
        with torch.no_grad():
            k1, k2 = self.momentum_base(x1), self.momentum_base(x2)
        l12, acc = self.contrast(q1, k2)
        l21, _ = self.contrast(q2, k1)
        return l12 + l21, acc


mix = torch.randn(30, 40) / 30**0.5
moco = MoCo()
trainable = [p for p in moco.parameters() if p.requires_grad]
opt = torch.optim.AdamW(trainable, lr=2e-3)
for step in range(251):
    x1, x2 = scenes(64, mix)
    loss, acc = moco(x1, x2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    moco.follow()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} in-batch top-1 {acc.item():.3f}")
