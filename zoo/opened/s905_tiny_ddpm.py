# expect: sick
# symptom: the diffusion loss comes down to 1.0 and stays there for good; the samples are noise
# axis: loss
# cause: the noise that the loss takes as target is not the noise that was added to the image: q_sample draws its own fresh noise, so the target is unpredictable from the input
# says: (noise.{0,80}(different|differs?\b|another|second|fresh|other|not the (same|one)|re-?(drawn|sampl\w*)|twice|mismatch\w*|unrelated|independent|own|does ?n[o']t match|not passed)|(target|label)s?\b.{0,60}(unrelated|independent|uncorrelated|unpredictable|pure noise|random|no (relation|information|signal|dependence)|do(es)? not depend|mismatch\w*)|(input|prediction|output)s?\b.{0,50}(unrelated|independent|uncorrelated|carr\w+ no).{0,40}target)
# onset_step: 1
# fix: pass the drawn noise to q_sample, so that input and target share it
# mended: q_sample is called with noise=noise
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1234)
MENDED = os.environ.get("MENDED") == "1"


def make_blobs(n, size=16):
    """Two soft discs per image, values in [-1, 1]."""
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    img = torch.zeros(n, size, size)
    for _ in range(2):
        c = torch.rand(n, 2) * (size - 6) + 3
        r = torch.rand(n) * 1.5 + 1.5
        d2 = (yy - c[:, :1, None]) ** 2 + (xx - c[:, 1:, None]) ** 2
        img = torch.maximum(img, torch.exp(-d2 / (2 * r[:, None, None] ** 2)))
    return (img * 2 - 1).unsqueeze(1)


class GaussianDiffusion:
    def __init__(self, timesteps=150):
        self.T = timesteps
        self.betas = torch.linspace(5e-4, 0.055, timesteps)
        self.alphas = 1 - self.betas
        self.abar = torch.cumprod(self.alphas, 0)

    def q_sample(self, x0, t, noise=None):
        if noise is None:
            noise = torch.randn_like(x0)
        ab = self.abar[t].view(-1, 1, 1, 1)
        return ab.sqrt() * x0 + (1 - ab).sqrt() * noise

    def training_losses(self, model, x0):
        t = torch.randint(0, self.T, (x0.shape[0],))
        noise = torch.randn_like(x0)
        x_t = self.q_sample(x0, t, noise=noise) if MENDED else self.q_sample(x0, t)
        return F.mse_loss(model(x_t, t), noise)

    @torch.no_grad()
    def sample(self, model, n, size=16):
        x = torch.randn(n, 1, size, size)
        for i in reversed(range(self.T)):
            t = torch.full((n,), i)
            eps = model(x, t)
            x = (x - self.betas[i] / (1 - self.abar[i]).sqrt() * eps) / self.alphas[i].sqrt()
            if i:
                x = x + self.betas[i].sqrt() * torch.randn_like(x)
        return x


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(1000) * torch.arange(half) / half)
        ang = t[:, None].float() * freqs
        return self.mlp(torch.cat([ang.sin(), ang.cos()], -1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(cin, cout, 3, padding=1), nn.Conv2d(cout, cout, 3, padding=1)
        self.n1, self.n2 = nn.GroupNorm(4, cout), nn.GroupNorm(4, cout)
        self.t = nn.Linear(temb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = F.silu(self.n1(self.c1(x))) + self.t(e)[:, :, None, None]
        return F.silu(self.n2(self.c2(h))) + self.skip(x)


class TinyUNet(nn.Module):
    def __init__(self, w=12, temb=32):
        super().__init__()
        self.time = TimeEmbedding(temb)
        self.inc = nn.Conv2d(1, w, 3, padding=1)
        self.b1, self.b2 = ResBlock(w, w, temb), ResBlock(w, 2 * w, temb)
        self.mid = ResBlock(2 * w, 2 * w, temb)
        self.b3 = ResBlock(3 * w, w, temb)
        self.out = nn.Conv2d(w, 1, 3, padding=1)

    def forward(self, x, t):
        e = self.time(t)
        a = self.b1(self.inc(x), e)
        h = self.mid(self.b2(F.avg_pool2d(a, 2), e), e)
        h = F.interpolate(h, scale_factor=2)
        return self.out(self.b3(torch.cat([h, a], 1), e))


def main():
    data = make_blobs(2000)
    diffusion, model = GaussianDiffusion(), TinyUNet()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    avg = None
    for step in range(1, 401):
        batch = data[torch.randint(0, len(data), (24,))]
        loss = diffusion.training_losses(model, batch)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} (avg {avg:.4f})")
    x = diffusion.sample(model, 32)
    print(f"samples: mean {x.mean():.3f} std {x.std():.3f}   data: mean {data.mean():.3f} std {data.std():.3f}")


if __name__ == "__main__":
    main()
