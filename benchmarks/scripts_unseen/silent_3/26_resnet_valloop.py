# expect: sick
# fault: eval mode left on after the first validation
# onset_step: 20
# says: (?i)(\beval\b|\beval\(|evaluation mode|train\(\)|train(ing)? mode|batch.?norm.{0,60}(running|frozen|eval|stat)|dropout.{0,40}(\boff\b|inactive|eval))
# note: validate() calls model.eval() and model.train() stands only once before the first epoch; from epoch 1 on BatchNorm is frozen at half-made statistics and dropout is off.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class BasicBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.skip = (
            nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if i != o else nn.Identity()
        )

    def forward(self, x):
        h = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(h + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.body = nn.Sequential(BasicBlock(3, 12, 1), BasicBlock(12, 24, 2), BasicBlock(24, 24, 1))
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(24, classes)

    def forward(self, x):
        return self.fc(self.drop(self.body(x).mean((2, 3))))


def validate(model, x, y):
    model.eval()
    with torch.no_grad():
        out = model(x)
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


torch.manual_seed(20)
protos = torch.randn(6, 3, 10, 10)
y_all = torch.randint(0, 6, (760,))
x_all = 0.35 * protos[y_all] + torch.randn(760, 3, 10, 10)
x_tr, y_tr, x_va, y_va = x_all[:640], y_all[:640], x_all[640:], y_all[640:]
model = ResNet()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
model.train()
for epoch in range(7):
    for idx in torch.randperm(640).split(32):
        loss = F.cross_entropy(model(x_tr[idx]), y_tr[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    v, acc = validate(model, x_va, y_va)
    print(f"epoch {epoch} train {loss.item():.4f} final val {v:.4f} acc {acc:.3f}")
