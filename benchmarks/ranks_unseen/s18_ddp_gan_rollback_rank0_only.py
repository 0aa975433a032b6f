# expect: sick
# fault: two DDP models (GAN): at step 70 the discriminator is rolled back to its snapshot of step 30, but on rank 0 only; from then on rank 0's discriminator differs from rank 1's
# names: (?is)(?=.*\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*0\b)(?=.*(?:param|weight|bias|replica|model|grad|tensor|discriminator|critic))(?=.*(?:differ|drift|diverg|disagree|apart|unequal|not (?:equal|identical|the same|in sync|shared|synchroni[sz]ed|reduced|averaged|all-?reduced)|no longer (?:equal|identical|the same|in sync)|mismatch|out of sync|unsynchroni[sz]ed|inconsistent|never (?:reduced|synchroni[sz]ed|averaged|shared)|local gradient|desync|jump|chang|roll(?:ed)?[ -]?back|revert|loaded|overwritten))
# onset_step: 70
# within: 15
# ranks: 2
# rank: 0
import copy
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
STEPS, BATCH, LATENT = 130, 48, 6


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def ring(g):
    """Eight Gaussians on a circle."""
    angle = torch.randint(0, 8, (BATCH,), generator=g) * (torch.pi / 4)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(BATCH, 2, generator=g)


def digest(model):
    return sum(p.double().abs().sum().item() for p in model.parameters())


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(14)
    gen, disc = DDP(Generator()), DDP(Discriminator())
    gen_opt = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.99))
    disc_opt = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.5, 0.99))
    g = torch.Generator().manual_seed(70 + rank)
    snapshot = None
    for step in range(STEPS):
        if rank == 0 and step == 30:
            snapshot = copy.deepcopy(disc.module.state_dict())
        if rank == 0 and step == 70:
            # the discriminator has become too strong: go back to the one of step 30
            disc.module.load_state_dict(snapshot)
        real, z = ring(g), torch.randn(BATCH, LATENT, generator=g)
        fake = gen(z)

        scores = disc(torch.cat([real, fake.detach()]))
        d_loss = F.softplus(-scores[:BATCH]).mean() + F.softplus(scores[BATCH:]).mean()
        disc_opt.zero_grad()
        d_loss.backward()
        disc_opt.step()

        for p in disc.parameters():
            p.requires_grad_(False)
        g_loss = F.softplus(-disc.module(fake)).mean()
        gen_opt.zero_grad()
        g_loss.backward()
        gen_opt.step()
        for p in disc.parameters():
            p.requires_grad_(True)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} d {d_loss.item():.4f} g {g_loss.item():.4f}", flush=True)
        if step in (69, 70, STEPS - 1):
            print(f"after {step} rank={rank} gen={digest(gen):.9f} disc={digest(disc):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
