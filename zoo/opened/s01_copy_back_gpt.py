# expect: sick
# symptom: loss falls only slowly and hangs above 1.5 for the whole run; the task is exactly learnable (loss 0)
# axis: model
# cause: rotary angles are laid along the head axis instead of the time axis, so attention knows no positions
# says: (?i)(rotary|rope|position)
# onset_step: 1
# fix: take the rotary positions from the time axis (dim 2 of B,H,T,D), not from dim 1
# mended: MENDED=1 python s01_copy_back_gpt.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
TIME_AXIS = 2 if os.environ.get("MENDED") == "1" else 1
VOCAB, T, D, H = 16, 24, 32, 2


def rotate(x):
    n, half = x.shape[TIME_AXIS], x.shape[-1] // 2
    freq = 1.0 / (100.0 ** (torch.arange(half) / half))
    ang = torch.arange(n)[:, None] * freq[None]
    shape = [1, 1, 1, half]
    shape[TIME_AXIS] = n
    cos, sin = ang.cos().view(shape), ang.sin().view(shape)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, t, D))
        return x + self.ff(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(D, VOCAB)

    def forward(self, ids):
        return self.head(self.blocks(self.emb(ids)))


ids = torch.randint(0, VOCAB, (64 * 400, T))
want = ids.roll(3, dims=1)
want[:, :3] = -100
loader = DataLoader(TensorDataset(ids, want), batch_size=64, shuffle=True)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), weight_decay=0.0)
for step, (x, y) in enumerate(loader, 1):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or step == 1:
        print(f"step {step} loss {loss.item():.4f}")
    if step == 280:
        break
