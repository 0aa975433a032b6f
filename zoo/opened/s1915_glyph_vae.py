# expect: sick
# symptom: reconstructions stay blurred and all alike, the KL term sinks to zero and the loss sits on a plateau
# axis: schedule
# cause: the KL weight's warm-up ramp has no upper bound, so after the warm-up beta keeps growing past 1 to about 15 and the posterior collapses
# says: (beta|kl|warm[- ]?up|anneal\w*|ramp|weight)[^.]*(unbounded|not? (clamp|cap|clip|bound|upper|ceiling|limit)|never (stop|clamp|cap|clip|satur|limit)\w*|without (a |an )?(clamp|cap|clip|bound|upper|ceiling|limit)|uncapped|unclamped|keeps? (growing|rising|increasing|climbing)|beyond|past|exceed\w*|above 1|over 1|grow\w*|increas\w*|too (large|high|strong|big))|posterior collapse
# onset_step: 60
# fix: cap the ramp, min(1.0, step / warmup)
# mended: yes
import os
from dataclasses import dataclass, field
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class VAEConfig:
    side: int = 14
    latent: int = 8
    hidden: int = 160
    batch: int = 96
    lr: float = 1e-3
    steps: int = 900
    kl_warmup: int = 60
    log_every: int = 30


def draw_glyphs(n, side, gen):
    """Two strokes per glyph at random places, binarised softly."""
    yy, xx = torch.meshgrid(torch.arange(side).float(), torch.arange(side).float(), indexing="ij")
    canvas = torch.zeros(n, side, side)
    for _ in range(2):
        cx, cy = 3 + (side - 7) * torch.rand(2, n, 1, 1, generator=gen)
        ang = 3.1416 * torch.rand(n, 1, 1, generator=gen)
        u = (xx - cx) * ang.cos() + (yy - cy) * ang.sin()
        v = -(xx - cx) * ang.sin() + (yy - cy) * ang.cos()
        stroke = torch.sigmoid(4 * (1.0 - v.abs())) * torch.sigmoid(3 * (4.0 - u.abs()))
        canvas = torch.maximum(canvas, stroke)
    return canvas.flatten(1)


def kl_ramp(warmup):
    def beta(step):
        b = step / warmup
        return min(1.0, b) if MENDED else b

    return beta


class GlyphVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.side**2
        self.enc = nn.Sequential(nn.Linear(d, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden), nn.SiLU())
        self.mu = nn.Linear(cfg.hidden, cfg.latent)
        self.logvar = nn.Linear(cfg.hidden, cfg.latent)
        self.dec = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden),
            nn.SiLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.SiLU(),
            nn.Linear(cfg.hidden, d),
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 4)
        z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
        return self.dec(z), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return recon, kl


@torch.no_grad()
def validate(model, x):
    model.eval()
    logits, mu, logvar = model(x)
    recon, kl = elbo_terms(logits, x, mu, logvar)
    model.train()
    return recon.item(), kl.item()


def main(cfg=VAEConfig()):
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(4)
    train_x = draw_glyphs(6000, cfg.side, gen)
    val_x = draw_glyphs(1000, cfg.side, gen)
    model = GlyphVAE(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    beta = kl_ramp(cfg.kl_warmup)

    for step in range(cfg.steps):
        x = train_x[torch.randint(len(train_x), (cfg.batch,))]
        logits, mu, logvar = model(x)
        recon, kl = elbo_terms(logits, x, mu, logvar)
        loss = recon + beta(step) * kl
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if (step + 1) % cfg.log_every == 0:
            vr, vk = validate(model, val_x)
            print(
                f"step {step + 1:4d} loss {loss.item():8.3f} recon {recon.item():7.3f} kl {kl.item():6.3f} "
                f"| val recon {vr:7.3f} kl {vk:6.3f} elbo {-(vr + vk):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
