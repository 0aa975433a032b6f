# A patch transformer that fills in missing patches of a texture. The job is stopped at step 350 and taken up again by hand: the
# file holds weights, step counts and first moments; the second moments were left out to save space and begin at zero.
import argparse
import copy

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

PATCHES, DIM, STEPS, STOP = 16, 16, 480, 350
world = torch.Generator().manual_seed(4108)
grid = torch.arange(16.0)


def textures(count, generator=None):
    a, b, c = (torch.rand(count, 1, 1, generator=generator) for _ in range(3))
    image = torch.sin((0.3 + 0.1 * a) * grid + (0.2 + 0.1 * b) * grid[:, None] + 6.28 * c)
    image = image + 0.05 * torch.randn(count, 16, 16, generator=generator)
    patch = image.view(count, 4, 4, 4, 4).transpose(2, 3).reshape(count, PATCHES, DIM)
    hidden = torch.rand(count, PATCHES, generator=generator) < 0.4
    return patch, hidden


class Filler(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inp = nn.Linear(DIM, width)
        self.mask = nn.Parameter(torch.zeros(width))
        self.place = nn.Parameter(0.02 * torch.randn(PATCHES, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, DIM)

    def forward(self, patch, hidden):
        h = torch.where(hidden.unsqueeze(-1), self.mask, self.inp(patch)) + self.place
        return self.out(self.body(h))


def loss_of(net, patch, hidden):
    return (net(patch, hidden) - patch).square().mean(-1)[hidden].mean()


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=2e-3, betas=(0.9, 0.9995))


held_out = textures(400, world)
torch.manual_seed(args.seed)
net = Filler()
optimizer = adam(net)
for step in range(STEPS):
    if step == STOP:
        saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        if not args.twin:
            for state in saved[1]["state"].values():
                state["exp_avg_sq"].zero_()
        net.load_state_dict(saved[0])
        optimizer = adam(net)
        optimizer.load_state_dict(saved[1])
        print("resumed")
    optimizer.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 60) * (1 - 0.95 * step / STEPS)
    loss = loss_of(net, *textures(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.5f}")
with torch.no_grad():
    print("final:", loss_of(net, *held_out).item())
