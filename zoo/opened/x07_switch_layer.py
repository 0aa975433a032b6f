# expect: healthy
# symptom: rows are sorted or grouped, which looks like an order that is not restored
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class SwitchFFN(nn.Module):
    def __init__(self, d, hidden, n_experts):
        super().__init__()
        self.n = n_experts
        self.gate = nn.Linear(d, n_experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(n_experts, d, hidden) / d**0.5)
        self.w2 = nn.Parameter(torch.randn(n_experts, hidden, d) / hidden**0.5)

    def forward(self, x):
        flat = x.flatten(0, -2)
        p = self.gate(flat).softmax(-1)
        score, choice = p.max(-1)
        order = choice.argsort()
        counts = torch.bincount(choice, minlength=self.n).tolist()
        ys = []
        for e, part in enumerate(flat[order].split(counts)):
            ys.append(F.relu(part @ self.w1[e]) @ self.w2[e])
        y = torch.cat(ys)[order.argsort()] * score[:, None]
        return y.view_as(x)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.ffn = SwitchFFN(d, 2 * d, 4)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.ffn(self.norm2(x))


class Model(nn.Module):
    def __init__(self, vocab=20, d=32, t=16, n_layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(t, d)
        self.blocks = nn.Sequential(*[Block(d) for _ in range(n_layers)])
        self.head = nn.Linear(d, vocab)

    def forward(self, x):
        h = self.wte(x) + self.wpe.weight[: x.size(1)]
        return self.head(self.blocks(h))


def sequences(n, t, vocab):
    start = torch.randint(0, vocab, (n, 1))
    stride = torch.randint(1, 5, (n, 1))
    return (start + stride * torch.arange(t + 1)) % vocab


torch.manual_seed(0)
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(1, 141):
    s = sequences(32, 16, 20)
    loss = F.cross_entropy(model(s[:, :-1]).transpose(1, 2), s[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"{step:4d} loss {loss.item():.4f}")
