# expect: sick
# symptom: the plain model reaches 95 percent, the averaged one stays at chance
# axis: model
# cause: the EMA copy averages only the parameters; its batch-norm running mean and variance stay at their first values (0 and 1) and it is evaluated with them
# says: (buffer|running (mean|var|stat)|batch.?norm).*(ema|average|copied|updat|follow|never|stale|init)|(ema|EMA).*(buffer|running|batch.?norm)
# onset_step: 0
# fix: copy (or average) the buffers too, as with use_buffers=True, or re-estimate the batch norms before the evaluation
# mended: the buffers are copied in each update
import copy
import os
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
MENDED = os.environ.get("MENDED") == "1"


class ModelEMA:
    def __init__(self, model, decay=0.97):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for avg, new in zip(self.module.parameters(), model.parameters()):
            avg.mul_(self.decay).add_(new, alpha=1 - self.decay)
        if MENDED:
            for avg, new in zip(self.module.buffers(), model.buffers()):
                avg.copy_(new)


def conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2)
    )


def images(n, protos):
    y = torch.randint(0, 6, (n,))
    x = protos[y] * 90 + 120 + 60 * torch.randn(n, 3, 16, 16)
    return x, y


@torch.no_grad()
def accuracy(m, x, y):
    was = m.training
    m.eval()
    acc = (m(x).argmax(1) == y).float().mean().item()
    m.train(was)
    return acc


protos = nn.functional.interpolate(torch.randn(6, 3, 4, 4), size=16)
x_train, y_train = images(1500, protos)
x_val, y_val = images(300, protos)
net = nn.Sequential(conv(3, 16), conv(16, 24), conv(24, 32), nn.Flatten(), nn.Linear(32 * 4, 6))
ema = ModelEMA(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
step = 0
for epoch in range(5):
    net.train()
    for idx in torch.randperm(len(x_train)).split(50):
        loss = nn.functional.cross_entropy(net(x_train[idx]), y_train[idx], label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(net)
        step += 1
    print(
        f"step {step} loss {loss.item():.3f} val {accuracy(net, x_val, y_val):.3f} ema val {accuracy(ema.module, x_val, y_val):.3f}"
    )
