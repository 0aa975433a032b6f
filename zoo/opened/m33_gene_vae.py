# expect: healthy
# symptom: resembles the fault that a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GENES, Z, BATCH = 40, 5, 64


def expression_matrix(cells, rng, programs):
    usage = rng.dirichlet(np.ones(len(programs)), size=cells)
    lam = 4.0 * usage @ programs + 0.2
    return np.log1p(rng.poisson(lam)).astype(np.float32)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(GENES, 48), nn.ELU())
        self.stats = nn.Linear(48, 2 * Z)

    def forward(self, x):
        mean, logvar = self.stats(self.body(x)).chunk(2, dim=-1)
        return mean, logvar.clamp(-8, 8)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(Z, 48), nn.ELU(), nn.Linear(48, GENES))

    def forward(self, z):
        return self.net(z)


def objective(recon, x, mean, logvar, beta):
    sq = 0.5 * F.mse_loss(recon, x, reduction="none").sum(dim=1)
    kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum()
    return (sq.sum() + beta * kl) / x.size(0)


def main():
    torch.manual_seed(31)
    rng = np.random.default_rng(31)
    programs = rng.gamma(0.5, 1.0, size=(6, GENES))
    x_all = torch.from_numpy(expression_matrix(1200, rng, programs))
    x_val = torch.from_numpy(expression_matrix(300, rng, programs))
    mu = x_all.mean(0)
    x_all, x_val = x_all - mu, x_val - mu

    enc, dec = Encoder(), Decoder()
    params = list(enc.parameters()) + list(dec.parameters())
    opt = torch.optim.AdamW(params, lr=3e-3)
    for step in range(1, 61):
        x = x_all[torch.randperm(len(x_all))[:BATCH]]
        mean, logvar = enc(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        loss = objective(dec(z), x, mean, logvar, beta=min(1.0, step / 30))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 0:
            with torch.no_grad():
                m, lv = enc(x_val)
                val = objective(dec(m), x_val, m, lv, beta=1.0).item()
            print(f"step {step} loss {loss.item():.3f} val {val:.3f}")


if __name__ == "__main__":
    main()
