# Pictures taken under water are cleared by a convolutional network with skips: SGD with momentum and a cosine schedule. The loader
# decodes one file of the archive as half-precision floats though it holds bytes: its batch, which comes round about every fifty steps,
# is noise of some five times the range. The right answer is to skip these updates, each time.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the file is decoded as it should be")
args = parser.parse_args()
torch.set_num_threads(1)

SIZE, STEPS, BATCH = 16, 520, 24
world = torch.Generator().manual_seed(9101)
haze = torch.tensor([0.9, 0.5, 0.3]).view(1, 3, 1, 1)

# the steps at which the file comes round
garbled, step = set(), 61
while step < STEPS:
    garbled.add(step)
    step += int(torch.randint(35, 60, (1,), generator=world))


def pictures(count, generator=None):
    """Hazy pictures as bytes, and the clear ones."""
    coarse = torch.randn(count, 3, 4, 4, generator=generator)
    clear = F.interpolate(coarse, SIZE, mode="bilinear", align_corners=False)
    clear = torch.tanh(2 * clear)
    depth = F.interpolate(torch.rand(count, 1, 2, 2, generator=generator), SIZE, mode="bilinear", align_corners=False)
    veil = torch.exp(-depth / haze)
    hazy = clear * veil + 0.4 * (1 - veil)
    hazy = hazy + 0.15 * torch.randn(hazy.shape, generator=generator)
    return ((hazy + 2) * 63.75).clamp(0, 255).to(torch.uint8), clear


def decode(data, as_half):
    if as_half:
        # two bytes are read as one float, for two neighbours
        values = data.contiguous().view(torch.float16).float().repeat_interleave(2, -1)
        return torch.nan_to_num(values).clamp(-8, 8)
    return data.float() / 63.75 - 2


class Clearer(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image):
        x = F.relu(self.into(image))
        for layer in self.middle:
            x = x + F.relu(layer(x))
        return image + self.out(x)


held_out = pictures(256, world)
torch.manual_seed(args.seed)
model = Clearer()
optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-3)
for step in range(STEPS):
    data, clear = pictures(BATCH)
    image = decode(data, as_half=step in garbled and not args.twin)
    loss = F.mse_loss(model(image), clear)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(decode(held_out[0], False)), held_out[1]).item())
