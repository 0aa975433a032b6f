# expect: sick
# fault: evaluation runs in training mode, so validation batches drive dropout and BatchNorm
# onset_step: 0
# says: (?i)(dropout|eval|train(ing)? mode|batch.?norm|running|stochastic|validation|statistic|leak)
# note: evaluate() never calls eval(), and the validation data passes through dropout 0.5 and updates BatchNorm's running statistics.
import torch
from torch import nn


class UNet1d(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        blk = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 5, padding=2), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.5))
        self.d1, self.d2 = blk(1, c), blk(c, 2 * c)
        self.u1 = blk(2 * c + c, c)
        self.out = nn.Conv1d(c, 2, 1)
        self.pool, self.up = nn.MaxPool1d(2), nn.Upsample(scale_factor=2)

    def forward(self, x):
        a = self.d1(x)
        b = self.up(self.d2(self.pool(a)))
        return self.out(self.u1(torch.cat([a, b], 1)))


def seg_batch(n, noise):
    x = noise * torch.randn(n, 1, 48)
    y = torch.zeros(n, 48, dtype=torch.long)
    for i in range(n):
        s = int(torch.randint(0, 36, (1,)))
        y[i, s : s + 12] = 1
    return x + y[:, None] * 1.5, y


@torch.no_grad()
def evaluate(net, data):
    # small batches here, the laptop is short of memory
    ls = [nn.functional.cross_entropy(net(x), y).item() for x, y in data]
    return sum(ls) / len(ls)


def train():
    torch.manual_seed(22)
    net = UNet1d()
    net.train()
    val = [seg_batch(2, 0.6) for _ in range(10)]
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for k in range(1, 151):
        x, y = seg_batch(24, 0.6)
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if k % 25 == 0:
            print(k, "train", round(loss.item(), 4), "val", round(evaluate(net, val), 4))


if __name__ == "__main__":
    train()
