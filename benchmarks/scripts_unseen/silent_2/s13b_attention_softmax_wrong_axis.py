# expect: sick
# fault: attention weights normalised over the batch axis
# onset_step: 0
# says: (?i)(softmax|axis|\bdim\b|batch (axis|dim)|normali[sz]|sum to (one|1)|across (the )?(samples|examples|batch|rows)|wrong dim)
# note: after an einsum the attention scores go through softmax(dim=0), which is the batch axis, so each sample's weights depend on the others.
import math
import torch
from torch import einsum, nn


class SelfAttention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.reshape(b, n, self.heads, -1) for t in self.to_qkv(x).chunk(3, -1))
        sim = einsum("b i h d, b j h d -> b h i j", q, k) * self.scale
        attn = torch.softmax(sim, 0)
        out = einsum("b h i j, b j h d -> b i h d", attn, v).reshape(b, n, d)
        return self.to_out(out)


class Sorter(nn.Module):
    """predict the rank of each number in the sequence"""

    def __init__(self, n=10, dim=48, depth=2):
        super().__init__()
        self.inp = nn.Linear(1, dim)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(
                nn.ModuleList(
                    [
                        nn.LayerNorm(dim),
                        SelfAttention(dim),
                        nn.LayerNorm(dim),
                        nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)),
                    ]
                )
            )
        self.out = nn.Linear(dim, n)

    def forward(self, x):
        h = self.inp(x[..., None])
        for n1, a, n2, f in self.blocks:
            h = h + a(n1(h))
            h = h + f(n2(h))
        return self.out(h)


def main(steps=200):
    torch.manual_seed(9)
    net = Sorter()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    lam = lambda s: min(1, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / steps))
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lam)
    for s in range(steps):
        x = torch.randn(32, 10)
        y = x.argsort(1).argsort(1)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        sch.step()
        if s % 25 == 0:
            print(f"{s:>4} | {loss.item():.4f}")


if __name__ == "__main__":
    main()
