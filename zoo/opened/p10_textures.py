# expect: sick
# symptom: ExponentialLR(gamma=0.9) meant for epochs is stepped once per batch; rate dead within about 60 steps
# axis: optimizer
# cause: a schedule of epochs is stepped in each batch
# says: schedul\w*|decay\w*|exponentiallr|each (batch|update)
# onset_step: 30
# fix: step it once an epoch
# mended: q10_textures.py
# Small conv classifier of synthetic textures
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ExponentialLR

torch.set_num_threads(1)
torch.manual_seed(9)
NUM_CLASSES = 8
NUM_EPOCHS = 8
BATCH_SIZE = 64


def textures(n, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, NUM_CLASSES, (n,), generator=gen)
    yy, xx = torch.meshgrid(torch.arange(20.0), torch.arange(20.0), indexing="ij")
    theta = (y.float() * torch.pi / NUM_CLASSES + 0.09 * torch.randn(n, generator=gen)).view(-1, 1, 1)
    freq = (0.6 + 0.8 * torch.rand(n, generator=gen)).view(-1, 1, 1)
    phase = (6.28 * torch.rand(n, generator=gen)).view(-1, 1, 1)
    wave = torch.sin(freq * (xx * theta.cos() + yy * theta.sin()) + phase)
    noise = torch.randn(n, 20, 20, generator=gen)
    return (0.7 * wave + noise).unsqueeze(1), y


def conv_unit(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


def make_model():
    return nn.Sequential(
        conv_unit(1, 16, 1),
        conv_unit(16, 24, 2),
        conv_unit(24, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, NUM_CLASSES),
    )


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        hits = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return hits


x_train, y_train = textures(2560, 1)
x_test, y_test = textures(500, 2)
net = make_model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
scheduler = ExponentialLR(optimizer, gamma=0.9)  # 0.9 ** NUM_EPOCHS = 0.43 at the end
step = 0
for epoch in range(NUM_EPOCHS):
    order = torch.randperm(len(x_train))
    for i in range(0, len(order), BATCH_SIZE):
        idx = order[i : i + BATCH_SIZE]
        loss = F.cross_entropy(net(x_train[idx]), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        step += 1
    print(f"epoch {epoch} test accuracy {accuracy(net, x_test, y_test):.3f}")
