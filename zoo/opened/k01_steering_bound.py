# expect: healthy
# symptom: the network ends in tanh and the targets reach 35 degrees
# axis: none
# mended: none
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=300)
p.add_argument("--max-angle", type=float, default=38.0, help="mechanical limit of the rack in degrees")
p.add_argument("--lr", type=float, default=2e-3)
args = p.parse_args()
torch.manual_seed(11)


def expert(track):
    """Demonstrations: pure pursuit on the lane curvature, limited by the rack."""
    curvature = track[:, :10].mean(1) * 26 + track[:, 10:].mean(1) * 18
    noise = 0.6 * torch.randn(len(track))
    return (curvature + noise).clamp(-35, 35).unsqueeze(1)


class Actor(nn.Module):
    def __init__(self, obs_dim, max_action):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(obs_dim, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1), nn.Tanh()
        )
        self.max_action = max_action

    def forward(self, obs):
        return self.net(obs)


def behaviour_cloning_loss(actor, obs, angle):
    return F.smooth_l1_loss(actor(obs) * actor.max_action, angle)


obs = torch.randn(4000, 20) + 0.8 * torch.randn(4000, 1)
angle = expert(obs)
test_obs, test_angle = obs[3500:], angle[3500:]
obs, angle = obs[:3500], angle[:3500]

actor = Actor(20, args.max_angle)
opt = torch.optim.Adam(actor.parameters(), lr=args.lr)
for step in range(args.steps):
    idx = torch.randint(0, len(obs), (128,))
    loss = behaviour_cloning_loss(actor, obs[idx], angle[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == args.steps - 1:
        with torch.no_grad():
            err = (actor(test_obs) * actor.max_action - test_angle).abs().mean()
        print(f"step {step} loss {loss.item():.3f} held-out error {err.item():.2f} deg")
