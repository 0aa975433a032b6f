# expect: sick
# symptom: the loss creeps down from ln(20) very slowly and accuracy stays far below what the net can do
# axis: loss
# cause: the network ends in nn.Softmax and its probabilities are fed to CrossEntropyLoss, which applies log-softmax again
# says: (double|twice|second|extra|redundant|two)[\w\s-]{0,20}soft-?max|soft-?max[\s\S]{0,60}(twice|again|before|already|inside|in(to)? (the )?(model|network|head|cross)|cross.?entropy|probabilit)|probabilit\w+[\s\S]{0,40}(instead of|not|rather than|where|as)[\s\S]{0,15}logits|cross.?entropy[\s\S]{0,50}(probabilit|softmax)|already normali[sz]ed|not (raw )?logits
# onset_step: 1
# fix: return the raw logits (drop the Softmax from the head)
# mended: with MENDED=1 the head is built without the Softmax layer
import argparse
import math
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def make_textures(n, n_classes, size, gen):
    """Oriented gratings: the class is a pair (orientation, frequency)."""
    labels = torch.randint(0, n_classes, (n,), generator=gen)
    theta = (labels % 5).float() * math.pi / 5
    freq = 1.0 + (labels // 5).float() * 0.8
    yy, xx = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    yy, xx = yy / size * 2 * math.pi, xx / size * 2 * math.pi
    phase = torch.rand(n, generator=gen) * 2 * math.pi
    arg = xx[None] * theta.cos()[:, None, None] + yy[None] * theta.sin()[:, None, None]
    img = torch.sin(arg * freq[:, None, None] + phase[:, None, None])
    tint = 0.5 + torch.rand(n, 3, 1, 1, generator=gen)
    img = img[:, None] * tint + 0.6 * torch.randn(n, 3, size, size, generator=gen)
    return img, labels


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class TextureNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(conv_block(3, 16), conv_block(16, 32), conv_block(32, 64))
        head = [nn.Flatten(), nn.Linear(64 * 9, 96), nn.ReLU(inplace=True), nn.Linear(96, n_classes)]
        if os.environ.get("MENDED") != "1":
            head.append(nn.Softmax(dim=1))
        self.classifier = nn.Sequential(*head)

    def forward(self, x):
        return self.classifier(self.features(x))


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    hit = total = 0
    loss = 0.0
    for x, y in loader:
        out = model(x)
        loss += criterion(out, y).item() * len(y)
        hit += (out.argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return loss / total, hit / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--classes", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    train_set = TensorDataset(*make_textures(3200, args.classes, 24, gen))
    val_set = TensorDataset(*make_textures(800, args.classes, 24, gen))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=200)

    model = TextureNet(args.classes)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)

    step = 0
    for epoch in range(args.epochs):
        for x, y in train_loader:
            out = model(x)
            loss = criterion(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step:4d} train loss {loss.item():.4f}")
        val_loss, acc = evaluate(model, val_loader, criterion)
        print(f"epoch {epoch} val loss {val_loss:.4f} val acc {acc:.3f}")


if __name__ == "__main__":
    main()
