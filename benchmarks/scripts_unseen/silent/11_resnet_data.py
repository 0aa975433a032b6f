# EXPECT: sick
# FAULT: activations re-wrapped through .data, stem and stage get no gradient
# ONSET: 1
# SAYS: detach|.data|no gradient|gradient|not trained
import torch
import torch.nn as nn
from torch.autograd import Variable

torch.set_num_threads(1)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.b = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.n1 = nn.GroupNorm(4, c)
        self.n2 = nn.GroupNorm(4, c)

    def forward(self, x):
        h = torch.relu(self.n1(self.a(x)))
        return torch.relu(x + self.n2(self.b(h)))


class TinyResNet(nn.Module):
    def __init__(self, c=16, classes=8):
        super().__init__()
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.stage1 = ResBlock(c)
        self.stage2 = ResBlock(c)
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        x = self.stage1(self.stem(x))
        # save memory
        x = Variable(x.data)
        x = self.stage2(nn.functional.avg_pool2d(x, 2))
        return self.fc(x.mean((2, 3)))


def main(seed=31, iters=90):
    torch.manual_seed(seed)
    tex = torch.randn(8, 1, 4, 4)
    net = TinyResNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for i in range(iters):
        y = torch.randint(8, (24,))
        x = tex[y].repeat(1, 1, 3, 3) + 0.8 * torch.randn(24, 1, 12, 12)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if i % 10 == 0:
            print("iter", i, "loss", loss.item())


main()
