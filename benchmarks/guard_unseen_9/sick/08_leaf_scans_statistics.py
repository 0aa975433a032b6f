# Leaves are sorted by a network with batch normalization (slow running statistics, momentum 0.02): AdamW with a one-cycle schedule. At
# step 400 of 440, the scanner's calibration page is in the archive: one batch has values a few hundred times the usual. The weights bear
# it (the batch is normalized), but the running statistics are ruined and there are too few steps left to forget it.
# The right answer is to undo the whole step, buffers too (skip the batch with the buffers put back, or roll back and go on past it).
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="no calibration page")
args = parser.parse_args()
torch.set_num_threads(1)

SIZE, KINDS, STEPS, BATCH, PAGE = 12, 7, 440, 32, 400
world = torch.Generator().manual_seed(606)
vein = torch.randn(KINDS, 1, SIZE, SIZE, generator=world)
vein = F.avg_pool2d(vein, 3, stride=1, padding=1)


def leaves(count, generator=None):
    kind = torch.randint(0, KINDS, (count,), generator=generator)
    turn = torch.randint(0, 2, (count,), generator=generator).bool()
    image = vein[kind]
    image = torch.where(turn[:, None, None, None], image.flip(-1), image)
    return 1.6 * image + 1.3 * torch.randn(image.shape, generator=generator) + 0.3, kind


def layer(into, out, stride):
    return nn.Sequential(nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out, momentum=0.02), nn.SiLU())


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(layer(1, 16, 1), layer(16, 24, 2), layer(24, 32, 2))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(32, KINDS)

    def forward(self, image):
        return self.head(self.drop(self.body(image).mean((2, 3))))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 4e-3, total_steps=STEPS)

    def fit(self):
        self.model.train()
        for step in range(STEPS):
            image, kind = leaves(BATCH)
            if step == PAGE and not args.twin:
                image = 300 * torch.rand(BATCH, 1, 1, 1) * (image.abs() + 1)
            loss = F.cross_entropy(self.model(image), kind)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}")

    @torch.no_grad()
    def final(self, image, kind):
        self.model.eval()
        return F.cross_entropy(self.model(image), kind).item()


held_out = leaves(768, world)
torch.manual_seed(args.seed)
trainer = Trainer(Sorter())
trainer.fit()
print("final:", trainer.final(*held_out))
