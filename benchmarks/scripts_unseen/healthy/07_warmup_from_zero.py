# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(70)
V, D, T = 26, 48, 20


class MiniGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.te, self.pe = nn.Embedding(V, D), nn.Embedding(T, D)
        enc = nn.TransformerEncoderLayer(D, 4, 4 * D, dropout=0.05, batch_first=True, norm_first=True)
        self.core = nn.TransformerEncoder(enc, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.out = nn.Linear(D, V)
        self.register_buffer("m", torch.triu(torch.ones(T, T, dtype=torch.bool), 1))

    def forward(self, x):
        h = self.te(x) + self.pe.weight
        return self.out(self.norm(self.core(h, mask=self.m)))


nxt = torch.randperm(V)


def sample(bs=24):
    s = torch.randint(0, V, (bs, T + 1))
    for t in range(T):
        s[:, t + 1] = torch.where(torch.rand(bs) < 0.8, nxt[s[:, t]], s[:, t + 1])
    return s[:, :-1], s[:, 1:]


model = MiniGPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
warm, total = 10, 120
sched = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: s / warm if s < warm else max(0.05, 1 - (s - warm) / (total - warm))
)
for step in range(total):
    x, y = sample()
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    sched.step()
    if step % 20 == 0:
        print(f"{step:4d} {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
