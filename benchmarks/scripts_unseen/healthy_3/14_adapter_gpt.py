# expect: healthy
# fault: nearly all parameters frozen, new ones that start at zero
# note: bottleneck adapters in a frozen pretrained model: the up-projection starts at 0 and only the adapters and the last norm train.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)
V, T, D = 30, 16, 32


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(D, 16), nn.Linear(16, D)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(V, D), nn.Embedding(T, D)
        self.l = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.adapters = nn.ModuleList(nn.Identity() for _ in range(2))
        self.n, self.h = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, x):
        m = torch.triu(torch.full((x.shape[1],) * 2, float("-inf")), 1)
        z = self.e(x) + self.p(torch.arange(x.shape[1]))
        for l, a in zip(self.l, self.adapters):
            z = a(l(z, src_mask=m))
        return self.h(self.n(z))


def text(rule, n=24):
    s = torch.randint(0, V, (n, 1))
    for _ in range(T):
        s = torch.cat([s, rule[s[:, -1], torch.randint(0, 2, (n,))][:, None]], 1)
    return s[:, :-1], s[:, 1:]


def train(model, params, rule, steps, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr)
    for i in range(steps):
        x, y = text(rule)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 20 == 0:
            print(tag, i, f"{loss.item():.4f}")


base_rule = torch.randint(0, V, (V, 2))
new_rule = base_rule.clone()
new_rule[:12] = torch.randint(0, V, (12, 2))
model = LM()
train(model, model.parameters(), base_rule, 120, 4e-3, "base")
model.requires_grad_(False)
for i in range(2):
    model.adapters[i] = Adapter()
model.n.requires_grad_(True)
train(model, [p for p in model.parameters() if p.requires_grad], new_rule, 120, 5e-3, "adapter")
