# expect: healthy
# symptom: losses are negative, oscillate and do not go to zero, as in a diverging adversarial training
# axis: loss
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(47)
ROUNDS, CRITIC_STEPS, BATCH, NOISE = 120, 3, 256, 2


def ring(n, g):
    """Eight blobs on a circle."""
    k = torch.randint(0, 8, (n,), generator=g).float() * (6.283185 / 8)
    return torch.stack([k.cos(), k.sin()], 1) + 0.06 * torch.randn(n, 2, generator=g)


def mlp(i, o, width=64):
    return nn.Sequential(
        nn.Linear(i, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, o)
    )


def slope_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.pow(2).sum(1) + 1e-12).sqrt() - 1).pow(2).mean()


def sliced_distance(a, b, g, n=64):
    d = torch.randn(2, n, generator=g)
    d = d / d.norm(dim=0, keepdim=True)
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    gen, critic = mlp(NOISE, 2), mlp(2, 1)
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=5e-3, betas=(0.0, 0.9))
    ref = ring(2000, torch.Generator().manual_seed(9))
    z_eval = torch.randn(2000, NOISE, generator=g)

    def report(tag, c=float("nan"), w=float("nan")):
        with torch.no_grad():
            dist = sliced_distance(gen(z_eval), ref, torch.Generator().manual_seed(5))
        print(f"{tag} critic loss {c:.4f} generator loss {w:.4f} sliced distance {dist:.4f}")

    with torch.no_grad():
        start = sliced_distance(gen(z_eval), ref, torch.Generator().manual_seed(5))
    print(f"before training: sliced distance {start:.4f}")
    for r in range(ROUNDS):
        for _ in range(CRITIC_STEPS):
            real = ring(BATCH, g)
            fake = gen(torch.randn(BATCH, NOISE, generator=g)).detach()
            c_loss = critic(fake).mean() - critic(real).mean() + 1.0 * slope_penalty(critic, real, fake)
            opt_c.zero_grad()
            c_loss.backward()
            opt_c.step()
        critic.requires_grad_(False)
        g_loss = -critic(gen(torch.randn(BATCH, NOISE, generator=g))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        critic.requires_grad_(True)
        if r % 16 == 0 or r == ROUNDS - 1:
            report(f"round {r:4d}", c_loss.item(), g_loss.item())


if __name__ == "__main__":
    main()
