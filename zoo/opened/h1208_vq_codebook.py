# expect: healthy
# symptom: the code book is a buffer that no optimizer holds, detach() stands on both sides of the quantiser, the code loss pulls only the encoder, weights change under no_grad in forward
# axis: none
# mended: none
"""Vector-quantised autoencoder for short waveforms; the code book follows moving averages."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(53)

LENGTH, CODES, DIM, STEPS, BATCH = 128, 64, 16, 600, 64


def waves(n, gen):
    """Pieces of four: every quarter is one of several shapes with random height."""
    t = torch.linspace(0, 1, LENGTH // 4)
    shapes = torch.stack(
        [torch.sin(6.28 * k * t) for k in (1, 2, 3)]
        + [2 * t - 1, 1 - 2 * t, (t - 0.5).abs() * 4 - 1, torch.sign(t - 0.5), torch.exp(-(((t - 0.5) * 6) ** 2))]
    )
    k = torch.randint(0, len(shapes), (n, 4), generator=gen)
    h = torch.rand(n, 4, 1, generator=gen) * 0.8 + 0.4
    x = (shapes[k] * h).flatten(1)
    return (x + 0.03 * torch.randn(n, LENGTH, generator=gen))[:, None]


class Quantiser(nn.Module):
    def __init__(self, decay=0.97, eps=1e-5):
        super().__init__()
        self.decay, self.eps = decay, eps
        self.register_buffer("book", torch.randn(CODES, DIM) * 0.3)
        self.register_buffer("size", torch.ones(CODES))
        self.register_buffer("total", self.book.clone())

    @torch.no_grad()
    def follow(self, flat, code):
        onehot = F.one_hot(code, CODES).to(flat.dtype)
        self.size.lerp_(onehot.sum(0), 1 - self.decay)
        self.total.lerp_(onehot.t() @ flat, 1 - self.decay)
        n = self.size.sum()
        size = (self.size + self.eps) / (n + CODES * self.eps) * n
        self.book.copy_(self.total / size[:, None])
        rare = self.size < 0.3
        if rare.any():
            pick = flat[torch.randint(0, len(flat), (int(rare.sum()),))]
            self.book[rare], self.total[rare], self.size[rare] = pick, pick, 1.0

    def forward(self, z):
        b, d, t = z.shape
        flat = z.transpose(1, 2).reshape(-1, d)
        code = torch.cdist(flat.detach(), self.book).argmin(1)
        q = self.book[code].view(b, t, d).transpose(1, 2)
        if self.training:
            self.follow(flat.detach(), code)
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, code


class VQ(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv1d(1, h, 8, 4, 2), nn.ReLU(), nn.Conv1d(h, h, 8, 4, 2), nn.ReLU(), nn.Conv1d(h, DIM, 1)
        )
        self.vq = Quantiser()
        self.dec = nn.Sequential(
            nn.Conv1d(DIM, h, 3, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(h, h, 8, 4, 2),
            nn.ReLU(),
            nn.ConvTranspose1d(h, 1, 8, 4, 2),
        )

    def forward(self, x):
        q, commit, code = self.vq(self.enc(x))
        return self.dec(q), commit, code


def main():
    gen = torch.Generator().manual_seed(1)
    train, test = waves(4000, gen), waves(500, gen)
    model = VQ()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    t0 = time.time()
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,), generator=gen)]
        y, commit, code = model(x)
        rec = F.mse_loss(y, x)
        loss = rec + 0.25 * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == STEPS - 1:
            used = code.unique().numel()
            print(
                f"step {step:4d} loss {loss.item():.4f} rec {rec.item():.4f} commit {commit.item():.4f} codes {used}",
                flush=True,
            )
    model.eval()
    with torch.no_grad():
        err = F.mse_loss(model(test)[0], test).item()
    print(f"test mse {err:.4f} (variance {test.var():.4f})   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
