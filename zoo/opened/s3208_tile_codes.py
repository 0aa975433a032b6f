# expect: sick
# symptom: reconstruction loss in training is not what the decoding from codes gives; that stays bad
# axis: model
# cause: the straight-through estimator is reversed: the decoder is fed the continuous latent, not the code
# says: straight.?through|\bSTE\b|(bypass|skip|not|never|revers|continuous).{0,60}(quanti|codebook|codes?\b)
# onset_step: 0
# fix: use z + (q - z).detach() so that the forward value is the code and the gradient goes to the encoder
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"
STEPS, BATCH, CODES, DIM = 280, 32, 64, 16


def tiles(n, g):
    """Gratings with a blob on top, 16x16, values around 0..1."""
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    ang = torch.randint(0, 4, (n, 1, 1), generator=g) * (torch.pi / 4)
    freq = 0.5 + 0.5 * torch.randint(0, 2, (n, 1, 1), generator=g)
    wave = 0.5 + 0.35 * torch.sin(freq * (xx * torch.cos(ang) + yy * torch.sin(ang)))
    cx = torch.randint(3, 13, (n, 1, 1), generator=g)
    cy = torch.randint(3, 13, (n, 1, 1), generator=g)
    blob = ((xx - cx) ** 2 + (yy - cy) ** 2 < 9).float()
    img = wave * (1 - blob) + blob
    return img.unsqueeze(1) + 0.02 * torch.randn(n, 1, 16, 16, generator=g)


class Codebook(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.table = nn.Embedding(k, d)
        nn.init.normal_(self.table.weight, std=0.5)

    def nearest(self, z):
        b, d, h, w = z.shape
        flat = z.permute(0, 2, 3, 1).reshape(-1, d)
        dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.table.weight.t()
        dist = dist + self.table.weight.pow(2).sum(1)
        return dist.argmin(1).view(b, h, w)

    def lookup(self, idx):
        return self.table(idx).permute(0, 3, 1, 2)

    def forward(self, z):
        idx = self.nearest(z)
        q = self.lookup(idx)
        book = F.mse_loss(q, z.detach())
        commit = F.mse_loss(z, q.detach())
        out = z + (q - z).detach() if MENDED else q + (z - q).detach()
        return out, book + 0.25 * commit, idx


class TileCoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 32, 4, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(32, DIM, 4, stride=2, padding=1),
            nn.GroupNorm(1, DIM),
        )
        self.book = Codebook(CODES, DIM)
        self.dec = nn.Sequential(
            nn.Conv2d(DIM, 32, 3, padding=1),
            nn.GELU(),
            nn.ConvTranspose2d(32, 32, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1),
        )

    def forward(self, x):
        z, aux, idx = self.book(self.enc(x))
        return self.dec(z), aux, idx

    @torch.no_grad()
    def compress(self, x):
        return self.book.nearest(self.enc(x))

    @torch.no_grad()
    def decompress(self, idx):
        return self.dec(self.book.lookup(idx))


def main():
    g = torch.Generator().manual_seed(5)
    valid = tiles(256, torch.Generator().manual_seed(99))
    net = TileCoder()
    with torch.no_grad():
        z0 = net.enc(tiles(64, g)).permute(0, 2, 3, 1).reshape(-1, DIM)
        net.book.table.weight.copy_(z0[torch.randperm(len(z0), generator=g)[:CODES]])
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    for step in range(STEPS):
        x = tiles(BATCH, g)
        rec, aux, idx = net(x)
        rec_loss = F.mse_loss(rec, x)
        loss = rec_loss + 0.1 * aux
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 40 == 0 or step == STEPS - 1:
            out = net.decompress(net.compress(valid))
            print(
                f"step {step:4d} loss {loss.item():.4f} rec {rec_loss.item():.4f} aux {aux.item():.4f} "
                f"codes used {idx.unique().numel():2d} valid file mse {F.mse_loss(out, valid).item():.4f}"
            )
    out = net.decompress(net.compress(valid))
    mse = F.mse_loss(out, valid).item()
    print(f"final valid file mse {mse:.4f} explained {1 - mse / valid.var().item():.3f}")


if __name__ == "__main__":
    main()
