# expect: healthy
# fault: negative and growing losses; parameters clamped in place
# note: the classic WGAN: five critic steps per generator step, weights clamped to 0.05, losses without a floor.
import argparse
import torch
import torch.nn as nn

torch.set_num_threads(1)


def real_batch(n):
    c = torch.randint(0, 2, (n, 1)).float() * 4 - 2
    return torch.cat([c, -c], 1) * 0.5 + 0.15 * torch.randn(n, 2)


def main(opt):
    torch.manual_seed(opt.seed)
    gen = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    g_opt = torch.optim.RMSprop(gen.parameters(), lr=opt.lr)
    c_opt = torch.optim.RMSprop(critic.parameters(), lr=opt.lr)
    for i in range(opt.iters):
        for _ in range(5):
            c_opt.zero_grad()
            fake = gen(torch.randn(64, 4)).detach()
            loss_c = critic(fake).mean() - critic(real_batch(64)).mean()
            loss_c.backward()
            c_opt.step()
            for p in critic.parameters():
                p.data.clamp_(-0.05, 0.05)
        g_opt.zero_grad()
        loss_g = -critic(gen(torch.randn(64, 4))).mean()
        loss_g.backward()
        g_opt.step()
        if i % 10 == 0:
            with torch.no_grad():
                s = gen(torch.randn(400, 4))
            print(
                i, "critic %.5f gen %.5f spread %.3f" % (loss_c.item(), loss_g.item(), (s[:, 0] - s[:, 1]).std().item())
            )


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=50)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
