# expect: sick
# symptom: the student does not get better than chance on the test set although the distillation loss is computed against a good teacher
# axis: data
# cause: the teacher's cached outputs were saved in the order of a shuffled loader and are later looked up by dataset index, so each sample gets another sample's soft targets
# says: (misalign\w*|mis-?match\w*.{0,40}(order|sample|row|index|target|label|teacher|input)|(wrong|different|another|other|scrambled|permut\w*|shuffl\w*).{0,40}(order|row|sample|index|teacher|target|label|logit|pair)|(teacher|soft|cached?|target|label)\w*.{0,60}(shuffl\w*|misalign\w*|permut\w*|do(es)? not (match|belong|correspond)|unrelated|out of (order|sync)|independent of))
# onset_step: 1
# fix: iterate the dataset without shuffling when the teacher's outputs are cached
# mended: the caching loader has shuffle=False when MENDED=1
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SIDE, CLASSES = 10, 10


def render(n, seed):
    templates = np.random.default_rng(0).normal(size=(CLASSES, SIDE, SIDE))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = templates[y]
    x = np.stack([np.roll(img, tuple(rng.integers(-1, 2, 2)), (0, 1)) for img in x])
    return (x + rng.normal(scale=0.9, size=x.shape)).astype(np.float32), y


class Digits(Dataset):
    def __init__(self, x, y):
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)
        self.soft = None

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.soft is None:
            return self.x[i], self.y[i]
        return self.x[i], self.y[i], self.soft[i]


def teacher_net():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIDE * SIDE, 256),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, CLASSES),
    )


def student_net():
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 32), nn.ReLU(), nn.Linear(32, CLASSES))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def train_teacher(loader, epochs):
    model = teacher_net()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return model


@torch.no_grad()
def cache_teacher(teacher, loader, path):
    teacher.eval()
    np.save(path, torch.cat([teacher(x) for x, _ in loader]).numpy())


def distill(student, loader, args):
    opt = torch.optim.Adam(student.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        for x, _, t_logits in loader:
            log_p = F.log_softmax(student(x) / args.temperature, dim=1)
            q = F.softmax(t_logits / args.temperature, dim=1)
            loss = F.kl_div(log_p, q, reduction="batchmean") * args.temperature**2
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 80 == 0:
                print(f"epoch {epoch} step {step} kd_loss {loss.item():.4f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--temperature", type=float, default=3.0)
    args = ap.parse_args()
    torch.manual_seed(21)

    train = Digits(*render(4096, 1))
    x_test, y_test = (torch.from_numpy(a) for a in render(1000, 2))
    loader = DataLoader(train, batch_size=64, shuffle=True)
    teacher = train_teacher(loader, epochs=4)
    print(f"teacher test accuracy {accuracy(teacher, x_test, y_test):.3f}")

    if os.environ.get("MENDED") == "1":
        cache_loader = DataLoader(train, batch_size=64, shuffle=False)
    else:
        cache_loader = loader
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "teacher_logits.npy")
        cache_teacher(teacher, cache_loader, path)
        train.soft = torch.from_numpy(np.load(path))

    student = student_net()
    distill(student, loader, args)
    print(f"student test accuracy {accuracy(student, x_test, y_test):.3f}")


if __name__ == "__main__":
    main()
