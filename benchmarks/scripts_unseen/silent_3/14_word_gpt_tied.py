# expect: sick
# fault: tied weights untied by re-assignment
# onset_step: 0
# says: (?i)(\btied?\b|\btying\b|\bunti(e|ed|ing)\b|shar(e|ed|ing).{0,40}weight|weight.{0,40}shar(e|ed|ing)\b)
# note: the output layer is tied to the embedding, then init_weights() assigns a new nn.Parameter to lm_head.weight; the model says it is tied (config.tie=True) and is not.
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Config:
    vocab: int = 60
    block: int = 24
    dim: int = 32
    heads: int = 4
    layers: int = 2
    tie: bool = True


class Attn(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.h = c.heads
        self.qkv = nn.Linear(c.dim, 3 * c.dim)
        self.o = nn.Linear(c.dim, c.dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.n1, self.n2 = Attn(c), nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.m = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim))

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.m(self.n2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.wte = nn.Embedding(c.vocab, c.dim)
        self.wpe = nn.Embedding(c.block, c.dim)
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.layers)])
        self.norm = nn.LayerNorm(c.dim)
        self.lm_head = nn.Linear(c.dim, c.vocab, bias=False)
        if c.tie:
            self.lm_head.weight = self.wte.weight
        self.init_weights()

    def init_weights(self):
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                m.weight = nn.Parameter(torch.empty_like(m.weight).normal_(0, 0.02))

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for l in self.layers:
            x = l(x)
        logits = self.lm_head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


torch.manual_seed(7)
cfg = Config()
trans = torch.stack([torch.randperm(cfg.vocab)[:3] for _ in range(cfg.vocab)])


def stream(n):
    s = torch.randint(0, cfg.vocab, (n, 1))
    for _ in range(cfg.block):
        s = torch.cat([s, trans[s[:, -1], torch.randint(0, 3, (n,))][:, None]], 1)
    return s[:, :-1], s[:, 1:]


model = GPT(cfg)
print("parameters:", sum(p.numel() for p in model.parameters()))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
for step in range(180):
    loss = model(*stream(24))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"{step} {loss.item():.4f}")
print("final loss", loss.item(), "tied", model.lm_head.weight is model.wte.weight)
