# expect: sick
# symptom: the discriminator loss goes to zero, the generator loss only rises and the pictures never leave noise
# axis: model
# cause: the generator step takes its pictures from sample(), which is decorated with no_grad, so the generator loss has no graph back to the generator and it never gets a gradient
# says: no_grad|detach|(generator|\bG\b|sample).{0,160}(no grad|not (train|updat|learn|receiv|get)|never (train|updat|learn|receiv|get|mov|chang)|without grad|zero grad|frozen|None|graph|unchanged|no update)
# onset_step: 0
# fix: make the fakes of the generator step with gradients (call the generator directly)
# mended: the generator step calls self.G(z) directly instead of self.sample(n)
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

ZDIM, BATCH, STEPS = 32, 32, 500


def sprites(n, seed=0):
    """16x16 grey pictures: one bright disc or square on a dark gradient."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:16, :16].astype(np.float32)
    out = np.empty((n, 1, 16, 16), np.float32)
    for i in range(n):
        cx, cy, r = rng.uniform(5, 10), rng.uniform(5, 10), rng.uniform(2.5, 4.5)
        d = np.hypot(xx - cx, yy - cy) if rng.random() < 0.5 else np.maximum(abs(xx - cx), abs(yy - cy))
        out[i, 0] = 1 / (1 + np.exp((d - r) * 3)) * rng.uniform(0.7, 1) + 0.15 * yy / 16
    return torch.from_numpy(out.clip(0, 1) * 2 - 1)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)


class Generator(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(ZDIM, 2 * w, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=False),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.ConvTranspose2d(w, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, w, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Conv2d(2 * w, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.net(x).flatten()


class Trainer:
    def __init__(self, data):
        self.data = data
        self.G, self.D = Generator(), Discriminator()
        self.G.apply(weights_init)
        self.D.apply(weights_init)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=4e-4, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def noise(self, n):
        return torch.randn(n, ZDIM)

    @torch.no_grad()
    def sample(self, n):
        return self.G(self.noise(n))

    def d_step(self, real):
        fake = self.sample(len(real))
        r, f = self.D(real), self.D(fake)
        loss = F.binary_cross_entropy_with_logits(r, torch.ones_like(r)) + F.binary_cross_entropy_with_logits(
            f, torch.zeros_like(f)
        )
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def g_step(self, n):
        fake = self.G(self.noise(n)) if MENDED else self.sample(n)
        f = self.D(fake)
        loss = F.binary_cross_entropy_with_logits(f, torch.ones_like(f))
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def fit(self, steps):
        t0 = time.time()
        for step in range(steps):
            real = self.data[torch.randint(0, len(self.data), (BATCH,))]
            d, g = self.d_step(real), self.g_step(BATCH)
            if step % 25 == 0:
                fake = self.sample(200)
                gap = (fake.mean(0) - self.data.mean(0)).abs().mean().item()
                print(
                    f"step {step:4d} d_loss {d:.4f} g_loss {g:.4f} mean-image gap {gap:.4f} "
                    f"fake std {fake.std().item():.3f} ({time.time() - t0:.1f}s)"
                )


def main():
    data = sprites(2000)
    print("real std %.3f" % data.std().item())
    Trainer(data).fit(STEPS)


if __name__ == "__main__":
    main()
