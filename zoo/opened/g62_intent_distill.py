# expect: sick
# symptom: the distillation loss has a high floor, the targets for the same sentence differ from epoch to epoch and the student is clearly below its teacher
# axis: model
# cause: the frozen teacher is never put in eval mode, so its dropout is active and the soft targets are noisy
# says: (teacher|target).*(dropout|eval|train(ing)? mode|noisy|noise|stochastic|random)|dropout.*teacher|teacher\.eval
# onset_step: 0
# fix: teacher.eval() before the distillation
# mended: teacher.eval()
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(29)
MENDED = os.environ.get("MENDED") == "1"
VOCAB, LENGTH, INTENTS = 200, 8, 12


class Sentences:
    def __init__(self, n):
        self.y = torch.randint(0, INTENTS, (n,))
        cue = self.y[:, None] * 10 + torch.randint(0, 10, (n, 3))
        rest = torch.randint(100, VOCAB, (n, LENGTH - 3))
        noise = torch.randint(0, 120, (n, 3))
        cue = torch.where(torch.rand(n, 3) < 0.7, cue, noise)
        self.x = torch.cat([cue, rest], 1)[:, torch.randperm(LENGTH)]

    def batches(self, size):
        for i in torch.randperm(len(self.y)).split(size):
            yield self.x[i], self.y[i]


class IntentNet(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width)
        self.net = nn.Sequential(
            nn.Dropout(p), nn.Linear(width, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, INTENTS)
        )

    def forward(self, x):
        return self.net(self.emb(x).mean(1) * LENGTH**0.5)


def accuracy(model, data):
    mode = model.training
    model.eval()
    with torch.no_grad():
        acc = (model(data.x).argmax(1) == data.y).float().mean().item()
    model.train(mode)
    return acc


labelled, unlabelled, test = Sentences(3000), Sentences(1600), Sentences(600)
teacher = IntentNet(96, p=0.5)
opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for epoch in range(4):
    teacher.train()
    for x, y in labelled.batches(64):
        loss = F.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(f"teacher test acc {accuracy(teacher, test):.3f}")

for p in teacher.parameters():
    p.requires_grad = False
if MENDED:
    teacher.eval()
student, tau = IntentNet(32, p=0.0), 1.0
opt = torch.optim.Adam(student.parameters(), lr=4e-3)
for epoch in range(6):
    student.train()
    total = 0.0
    for x, _ in unlabelled.batches(64):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / tau, -1)
        loss = F.kl_div(F.log_softmax(student(x) / tau, -1), soft, reduction="batchmean") * tau**2
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    with torch.no_grad():
        agree = (student(test.x).argmax(1) == teacher(test.x).argmax(1)).float().mean().item()
    print(
        f"epoch {epoch} distillation loss {total / 25:.4f} student test acc {accuracy(student, test):.3f} agreement {agree:.3f}"
    )
