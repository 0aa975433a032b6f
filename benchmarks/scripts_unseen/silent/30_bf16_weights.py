# EXPECT: sick
# FAULT: bf16 weights, updates lost to rounding
# ONSET: 1
# SAYS: bf16|bfloat16|round|precision|lost
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)
dtype = torch.bfloat16


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.o = nn.Linear(d, d)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.h, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))


class LM(nn.Module):
    def __init__(self, V=32, d=48, L=2, T=24):
        super().__init__()
        self.E = nn.Embedding(V, d)
        self.P = nn.Parameter(torch.randn(T, d))
        self.A = nn.ModuleList(Attn(d, 4) for _ in range(L))
        self.N = nn.ModuleList(nn.LayerNorm(d) for _ in range(L))
        self.head = nn.Linear(d, V)

    def forward(self, ids):
        x = self.E(ids) + self.P
        for a, n in zip(self.A, self.N):
            x = x + a(n(x))
        return self.head(x)


model = LM().to(dtype)  # half the memory
opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.0)
for step in range(120):
    s = (torch.randint(0, 32, (24, 1)) + 5 * torch.arange(25)) % 32
    logits = model(s[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.4f}")
