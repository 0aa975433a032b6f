# Semi-supervised classes of cells: a student learns from few labels and from the averaged weights of itself (mean teacher), Adam.
# At step 480 the teacher is read back from a checkpoint with another order of classes: its head is turned by one class.
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, GENES, CLASSES, LABELLED = 600, 40, 6, 2500
READ_BACK, KEEP = 480, 0.99
world = torch.Generator().manual_seed(7505)
centres = torch.randn(CLASSES, 10, generator=world)
lift = torch.randn(10, GENES, generator=world) / 3


def cells(count, generator=None):
    kind = torch.randint(CLASSES, (count,), generator=generator)
    hidden = centres[kind] + 1.5 * torch.randn(count, 10, generator=generator)
    genes = torch.tanh(hidden @ lift) + 0.3 * torch.randn(count, GENES, generator=generator)
    return genes, kind


class Net(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(GENES, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(0.2),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(0.2),
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, genes):
        return self.head(self.body(genes))


def loss_of(model, genes, kind):
    return F.cross_entropy(model(genes), kind)


def follow(teacher, student):
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), student.parameters()):
            old.mul_(KEEP).add_(new, alpha=1 - KEEP)


labelled = cells(LABELLED, world)
held_out = cells(6000, world)
torch.manual_seed(args.seed)
student = Net()
teacher = copy.deepcopy(student).eval()
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=1.5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-5)
for step in range(STEPS):
    pick = torch.randint(LABELLED, (96,))
    genes, kind = labelled[0][pick], labelled[1][pick]
    unlabelled, _ = cells(256)
    if step == READ_BACK and not args.twin:
        with torch.no_grad():
            teacher.head.weight.copy_(teacher.head.weight.roll(1, 0))
            teacher.head.bias.copy_(teacher.head.bias.roll(1, 0))
    with torch.no_grad():
        aim = torch.softmax(teacher(unlabelled), -1)
    told = student(unlabelled + 0.2 * torch.randn_like(unlabelled))
    agree = F.kl_div(F.log_softmax(told, -1), aim, reduction="batchmean")
    loss = loss_of(student, genes, kind) + 8.0 * min(1.0, step / 200) * agree
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    follow(teacher, student)
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
student.eval()
with torch.no_grad():
    print("final:", loss_of(student, *held_out).item())
