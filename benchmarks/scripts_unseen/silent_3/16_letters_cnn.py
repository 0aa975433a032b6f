# expect: sick
# fault: softmax before cross entropy
# onset_step: 0
# says: (?i)(soft.?max|probabilit|already normali[sz]ed|logits)
# note: the network ends in Softmax(dim=1) and the loss is CrossEntropyLoss, which applies its own; the gradient is squashed and the loss cannot go under about 1.7 for 12 classes.
import torch
from torch import nn

torch.set_num_threads(1)


def make_letters(n, g):
    strokes = torch.randn(12, 1, 10, 10, generator=torch.Generator().manual_seed(1234)).sign()
    y = torch.randint(0, 12, (n,), generator=g)
    return strokes[y] + 1.2 * torch.randn(n, 1, 10, 10, generator=g), y


net = None


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4, 48),
        nn.ReLU(),
        nn.Linear(48, 12),
        nn.Softmax(dim=1),
    )


def accuracy(model, g):
    x, y = make_letters(300, g)
    return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(6)
g = torch.Generator().manual_seed(2)
net = build()
crit = nn.CrossEntropyLoss()
sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for i in range(200):
    x, y = make_letters(48, g)
    sgd.zero_grad()
    out = net(x)
    loss = crit(out, y)
    loss.backward()
    sgd.step()
    if (i + 1) % 25 == 0:
        print(f"{i + 1:>4} loss={loss.item():.4f} acc={accuracy(net, g):.3f}")
print("final acc", accuracy(net, g))
