# expect: sick
# symptom: the loss falls at first, then stays at a level far above what the same recipe reaches elsewhere; norm gains and most weights do not move any more
# axis: precision
# cause: the weights themselves are bfloat16 (model.to(bfloat16)) with no fp32 master copy; at this learning rate most AdamW updates are below half a bf16 ulp and round to zero
# says: (bf16|bfloat16|half|low[- ]precision|16[- ]bit).{0,160}(round|master|update|ulp|underflow|swallow|vanish|lost|param|weight|stochastic)|(round|master (copy|weight|param)|update).{0,120}(bf16|bfloat16)|fp32 (master|copy)
# onset_step: 60
# fix: keep fp32 weights and use autocast (or an fp32 master copy / stochastic rounding)
# mended: weights stay float32
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

SIZE, PATCH, NCLS, DIM, DEPTH, HEADS = 16, 4, 10, 48, 2, 4
BATCH, STEPS, LR = 32, 450, 1e-4
PARAM_DTYPE = torch.float32 if MENDED else torch.bfloat16


def make_images(n, gen):
    """Gratings: the class is the orientation, phase, contrast and noise are nuisance."""
    y = torch.randint(0, NCLS, (n,), generator=gen)
    ang = y.float() * math.pi / NCLS + torch.randn(n, generator=gen) * 0.05
    freq = 0.7 + 0.5 * torch.rand(n, generator=gen)
    phase = 2 * math.pi * torch.rand(n, generator=gen)
    g = torch.arange(SIZE).float()
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    u = xx[None] * ang.cos()[:, None, None] + yy[None] * ang.sin()[:, None, None]
    img = torch.sin(u * freq[:, None, None] + phase[:, None, None])
    img = img * (0.5 + torch.rand(n, 1, 1, generator=gen)) + 0.3 * torch.randn(n, SIZE, SIZE, generator=gen)
    return img[:, None], y


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.h = h

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(PATCH * PATCH, DIM)
        self.cls = nn.Parameter(torch.zeros(1, 1, DIM))
        self.pos = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2 + 1, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block(DIM, HEADS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, NCLS)

    def forward(self, img):
        x = F.unfold(img, PATCH, stride=PATCH).transpose(1, 2)
        x = self.patch(x)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x)[:, 0])


class Trainer:
    def __init__(self):
        self.gen = torch.Generator().manual_seed(1)
        self.model = ViT().to(PARAM_DTYPE)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.05)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.factor)
        self.val = make_images(512, torch.Generator().manual_seed(2))

    @staticmethod
    def factor(s):
        if s < 20:
            return (s + 1) / 20
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (s - 20) / (STEPS - 20)))

    def forward(self, x):
        return self.model(x.to(PARAM_DTYPE)).float()

    @torch.no_grad()
    def accuracy(self):
        x, y = self.val
        return (self.forward(x).argmax(-1) == y).float().mean().item()

    def fit(self):
        for step in range(STEPS):
            x, y = make_images(BATCH, self.gen)
            loss = F.cross_entropy(self.forward(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.opt.zero_grad()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.2e}", flush=True)
            if (step + 1) % 150 == 0:
                print(f"step {step} val accuracy {self.accuracy():.3f}", flush=True)


if __name__ == "__main__":
    Trainer().fit()
