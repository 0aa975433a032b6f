# expect: healthy
# symptom: resembles wrong rotary positions: the loss stays near ln 16 for a while before it falls
# note: rotary angles on the time axis; the plateau before the copying head forms is normal
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
VOCAB, T, D, H = 16, 20, 32, 2


def rope(x):
    t, half = x.shape[2], x.shape[3] // 2
    ang = torch.arange(t)[:, None] / (100.0 ** (torch.arange(half) / half))[None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.qkv, self.out = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, t, D))
        return x + self.ff(self.n2(x))


model = nn.Sequential(nn.Embedding(VOCAB, D), Block(), Block(), nn.Linear(D, VOCAB))
ids = torch.randint(0, VOCAB, (64 * 360, T))
want = ids.roll(2, dims=1)
want[:, :2] = -100
opt = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
for step, (x, y) in enumerate(DataLoader(TensorDataset(ids, want), batch_size=64, shuffle=True), 1):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
