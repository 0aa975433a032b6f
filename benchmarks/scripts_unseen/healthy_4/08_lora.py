# expect: healthy
# cause: none, LoRA adapters with a zero second factor on a frozen base, so most parameters have no gradient and the first step changes only one factor
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(80)
VOCAB, T = 40, 24


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=16):
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features**0.5)
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.A), self.B)


class TinyGPT(nn.Module):
    def __init__(self, d=64, n_layer=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(T, d)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln1": nn.LayerNorm(d),
                    "qkv": nn.Linear(d, 3 * d),
                    "proj": nn.Linear(d, d),
                    "ln2": nn.LayerNorm(d),
                    "up": nn.Linear(d, 4 * d),
                    "down": nn.Linear(4 * d, d),
                }
            )
            for _ in range(n_layer)
        )
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, idx):
        b, t = idx.shape
        x = self.wte(idx) + self.wpe(torch.arange(t))
        for m in self.layers:
            q, k, v = m["qkv"](m["ln1"](x)).view(b, t, 3, 4, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + m["proj"](y.transpose(1, 2).reshape(b, t, -1))
            x = x + m["down"](F.gelu(m["up"](m["ln2"](x))))
        return self.head(self.ln(x))


def corpus(perm):
    """chains in which a word has three usual successors, given by a permutation of the words"""

    def draw(n):
        x = [torch.randint(0, VOCAB, (n,))]
        for _ in range(T):
            jump = torch.tensor([1, 1, 1, 2, 5])[torch.randint(0, 5, (n,))]
            x.append(perm[(x[-1] + jump) % VOCAB])
        return torch.stack(x, 1)

    return draw


def fit(model, draw, lr, steps, name):
    params = [p for p in model.parameters() if p.requires_grad]
    print(f"{name}: {sum(p.numel() for p in params)} trainable of {sum(p.numel() for p in model.parameters())}")
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    for step in range(steps):
        rows = draw(32)
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0 or step == steps - 1:
            print(f"  {name} {step} loss {loss.item():.4f}")


model = TinyGPT()
fit(model, corpus(torch.arange(VOCAB)), 2e-3, 150, "base")
for p in model.parameters():
    p.requires_grad_(False)
for m in model.layers:
    for name in ("qkv", "proj", "up", "down"):
        m[name] = LoRALinear(m[name])
shuffled = torch.arange(VOCAB)
shuffled[:12] = shuffled[:12].flip(0)
fit(model, corpus(shuffled), 8e-3, 250, "adapters")
