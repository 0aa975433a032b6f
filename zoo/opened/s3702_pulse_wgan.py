# expect: sick
# symptom: the critic loss grows into the thousands, its gradient norms explode, the samples stay poor
# axis: loss
# cause: the gradient penalty is computed without create_graph, so it is a constant and never constrains the critic
# says: create_graph|(penalty|gp|lipschitz).{0,70}(gradient|no effect|constant|detach|graph|not differenti)
# onset_step: 0
# fix: pass create_graph=True to torch.autograd.grad in the gradient penalty
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(21)
MENDED = os.environ.get("MENDED") == "1"

CFG = dict(length=32, z_dim=8, batch=64, n_critic=2, gen_steps=160, lr=1e-3, gp_weight=10.0)


class PulseBank:
    """Sensor pulses: a damped oscillation with random onset, frequency and gain."""

    def __init__(self, n=4096, length=32, seed=3):
        rng = np.random.default_rng(seed)
        t = np.arange(length)[None]
        onset = rng.uniform(4, 14, (n, 1))
        freq = rng.choice([0.09, 0.16], (n, 1))
        gain = rng.uniform(0.7, 1.3, (n, 1))
        dt = np.clip(t - onset, 0, None)
        x = gain * np.sin(2 * np.pi * freq * dt) * np.exp(-dt / 10.0)
        x += 0.03 * rng.standard_normal(x.shape)
        self.x = torch.tensor(x, dtype=torch.float32)
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, size):
        return self.x[torch.randint(len(self.x), (size,), generator=self.gen)]


class Generator(nn.Module):
    def __init__(self, z_dim, length):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(z_dim, 128),
            nn.LeakyReLU(0.2),
            nn.Linear(128, 128),
            nn.LeakyReLU(0.2),
            nn.Linear(128, length),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 32, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(32, 64, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
        )
        self.out = nn.Sequential(nn.Linear(64 * (length // 4), 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))

    def forward(self, x):
        return self.out(self.conv(x.unsqueeze(1)).flatten(1)).squeeze(1)


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1)
    mix = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(mix)
    (grad,) = torch.autograd.grad(score.sum(), mix, create_graph=MENDED, retain_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def sliced_distance(a, b, n_proj=128):
    g = torch.Generator().manual_seed(0)
    d = torch.randn(a.shape[1], n_proj, generator=g)
    d = d / d.norm(dim=0)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def main():
    bank = PulseBank(length=CFG["length"])
    gen, critic = Generator(CFG["z_dim"], CFG["length"]), Critic(CFG["length"])
    opt_g = torch.optim.Adam(gen.parameters(), lr=CFG["lr"], betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=CFG["lr"], betas=(0.5, 0.9))
    for it in range(CFG["gen_steps"]):
        for _ in range(CFG["n_critic"]):
            real = bank.batch(CFG["batch"])
            with torch.no_grad():
                fake = gen(torch.randn(CFG["batch"], CFG["z_dim"]))
            wass = critic(real).mean() - critic(fake).mean()
            gp = gradient_penalty(critic, real, fake)
            loss_c = -wass + CFG["gp_weight"] * gp
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        fake = gen(torch.randn(CFG["batch"], CFG["z_dim"]))
        loss_g = -critic(fake).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if it % 10 == 0:
            print(
                f"iter {it:3d} critic {loss_c.item():12.3f} gen {loss_g.item():12.3f} "
                f"wass {wass.item():10.3f} gp {gp.item():10.3f}"
            )
    with torch.no_grad():
        sample = gen(torch.randn(2048, CFG["z_dim"]))
    print(f"sliced distance to real pulses {sliced_distance(sample, bank.x[:2048]):.4f}")


if __name__ == "__main__":
    main()
