# Spoken commands from short sequences of filter-bank frames: a GRU with pooling over time, RMSprop with momentum and step decay.
# From step 460 to 520 the class list is read with one more folder in it: the label of each command is one too high (modulo all).
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH = 560, 80
FRAMES, BANDS, COMMANDS, SOUNDS = 24, 12, 8, 10
FOLDER_FROM, FOLDER_TO = 460, 520
world = torch.Generator().manual_seed(7606)
sounds = torch.randn(SOUNDS, BANDS, generator=world)
spelling = torch.stack([torch.randperm(SOUNDS, generator=world)[:4] for _ in range(COMMANDS)])


def utterances(count, generator=None):
    command = torch.randint(COMMANDS, (count,), generator=generator)
    # each sound lasts six frames on average; the speaker's pace moves the borders
    pace = 1 + 0.15 * torch.randn(count, 1, generator=generator)
    position = (torch.arange(FRAMES).float() * pace / 6).long().clamp(0, 3)
    sound = spelling[command].gather(1, position)
    voice = 0.6 * torch.randn(count, 1, BANDS, generator=generator)
    noise = 2.0 * torch.randn(count, FRAMES, BANDS, generator=generator)
    # some listeners heard another command
    heard = torch.randint(COMMANDS, (count,), generator=generator)
    wrong = torch.rand(count, generator=generator) < 0.15
    return sounds[sound] + voice + noise, torch.where(wrong, heard, command)


class Listener(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.norm = nn.LayerNorm(BANDS)
        self.gru = nn.GRU(BANDS, width, batch_first=True, bidirectional=True)
        self.weigh = nn.Linear(2 * width, 1)
        self.out = nn.Linear(2 * width, COMMANDS)

    def forward(self, frames):
        state, _ = self.gru(self.norm(frames))
        weight = torch.softmax(self.weigh(state), 1)
        return self.out((weight * state).sum(1))


def loss_of(model, frames, command):
    return F.cross_entropy(model(frames), command)


def label_of(command, step):
    """The index of the folder a recording lies in."""
    if FOLDER_FROM <= step < FOLDER_TO and not args.twin:
        return (command + 1) % COMMANDS
    return command


held_out = utterances(4000, world)
torch.manual_seed(args.seed)
model = Listener()
optimizer = torch.optim.RMSprop(model.parameters(), lr=6e-4, alpha=0.98, momentum=0.8)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [300, 440], 0.4)
for step in range(STEPS):
    frames, command = utterances(BATCH)
    loss = loss_of(model, frames, label_of(command, step))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
