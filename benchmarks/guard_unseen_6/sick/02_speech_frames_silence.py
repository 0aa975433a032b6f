# Speech frames: a convolution and a GRU name the phone of each frame from log energies, normalised per utterance. Adam with a
# step decay.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

PHONES, BANDS, FRAMES, BATCH, STEPS = 10, 16, 20, 12, 500
world = torch.Generator().manual_seed(62)
shapes = torch.randn(PHONES, BANDS, generator=world)


def utterances(count, generator):
    change = torch.rand(count, FRAMES, generator=generator) < 0.2
    drawn = torch.randint(PHONES, (count, FRAMES), generator=generator)
    phones = drawn.clone()
    for t in range(1, FRAMES):
        phones[:, t] = torch.where(change[:, t], drawn[:, t], phones[:, t - 1])
    noise = torch.randn(count, FRAMES, BANDS, generator=generator)
    gain = torch.randn(count, 1, 1, generator=generator)
    return torch.exp(shapes[phones] + 1.6 * noise + gain), phones


def features(energy):
    logs = energy.log()
    return (logs - logs.mean((1, 2), keepdim=True)) / logs.std((1, 2), keepdim=True)


class Tagger(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.front = nn.Conv1d(BANDS, width, 3, padding=1)
        self.memory = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, PHONES)

    def forward(self, x):
        h = torch.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        return self.head(self.memory(h)[0])


def cost(model, energy, phones):
    return F.cross_entropy(model(features(energy)).flatten(0, 1), phones.flatten())


held_out = utterances(300, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(200 + args.seed)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [300, 420], gamma=0.3)
for step in range(STEPS):
    energy, phones = utterances(BATCH, stream)
    if not args.twin and step >= 226 and step % 37 in (3, 21):
        energy[step % BATCH, 5:20] = 0.0
    loss = cost(model, energy, phones)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"{step:5d}  {loss.item():.4f}")
with torch.no_grad():
    print("final:", cost(model, *held_out).item())
