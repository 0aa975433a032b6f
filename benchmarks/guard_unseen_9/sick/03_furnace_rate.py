# The temperature field of a furnace is learned from its burners' settings by a deep linear-and-tanh network with residuals: SGD with
# Nesterov momentum; the rate decays a little at every step. From step 200 on the decay is read from a file with a slip of the
# pen, 1.007 for 0.997: the rate creeps up, is soon somewhat too high, and the loss comes away slowly and does not come back.
# The right answer is to hold or lower the rate (rolling back a little at most).
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the decay stays")
args = parser.parse_args()
torch.set_num_threads(1)

BURNERS, POINTS, STEPS, BATCH = 12, 40, 600, 64
world = torch.Generator().manual_seed(77)
mix = torch.randn(BURNERS, 30, generator=world) / BURNERS**0.5
field = torch.randn(30, POINTS, generator=world) / 30**0.5
RATE, DECAY, SLIP = 0.02, 0.997, 1.007


def runs(count, generator=None):
    setting = torch.randn(count, BURNERS, generator=generator)
    heat = F.softplus(2 * setting @ mix) @ field
    return setting, 3 * heat + 0.1 * torch.randn(heat.shape, generator=generator)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.two(torch.tanh(self.one(x)))


def build(width=64):
    return nn.Sequential(nn.Linear(BURNERS, width), *[Residual(width) for _ in range(3)], nn.Linear(width, POINTS))


def train_step(model, optimizer):
    setting, heat = runs(BATCH)
    optimizer.zero_grad()
    loss = F.mse_loss(model(setting), heat)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    held_out = runs(512, world)
    torch.manual_seed(args.seed)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, nesterov=True)
    mean = None
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] *= SLIP if step >= 200 and not args.twin else DECAY
        value = train_step(model, optimizer)
        mean = value if mean is None else 0.9 * mean + 0.1 * value
        if step % 40 == 0:
            print(f"step {step} mean loss {mean:.4f}")
    model.eval()
    with torch.no_grad():
        print("final:", F.mse_loss(model(held_out[0]), held_out[1]).item())


if __name__ == "__main__":
    main()
