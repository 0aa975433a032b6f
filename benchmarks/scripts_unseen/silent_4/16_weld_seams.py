# expect: sick
# cause: The sanity evaluation before training puts the model into eval mode and nothing puts it back, so batch norm uses its untouched initial statistics for the whole training.
import torch
import torch.nn as nn

torch.manual_seed(13)


def seams(n):
    """x-ray patches of seams: good, pore, crack, undercut"""
    kind = torch.randint(0, 4, (n,))
    g = torch.linspace(-1, 1, 20)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    img = torch.exp(-(yy**2) / 0.2).repeat(n, 1, 1)
    cx, cy = 1.2 * torch.rand(n, 1, 1) - 0.6, 0.5 * torch.rand(n, 1, 1) - 0.25
    pore = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.02)
    crack = torch.exp(-((xx - cx - 0.6 * yy) ** 2) / 0.005) * (yy.abs() < 0.5)
    under = torch.exp(-((yy - 0.55) ** 2) / 0.01)
    for c, defect in ((1, pore), (2, crack), (3, under.expand(n, 20, 20))):
        img = img - 0.7 * defect * (kind == c).view(-1, 1, 1)
    return (0.1 * (img + 0.25 * torch.randn(n, 20, 20))).unsqueeze(1), kind


def conv_bn(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class SeamNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(1, 16),
            conv_bn(16, 16),
            conv_bn(16, 24, 2),
            conv_bn(24, 24),
            conv_bn(24, 32, 2),
            conv_bn(32, 32),
            conv_bn(32, 32),
        )
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    out = model(x)
    return nn.functional.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


x_train, y_train = seams(2000)
x_val, y_val = seams(400)
model = SeamNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
print("sanity check before training: loss %.4f acc %.3f" % validate(model, x_val, y_val))

for step in range(300):
    i = torch.randint(0, 2000, (32,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x_train[i]), y_train[i])
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        print(f"step {step + 1} loss {loss.item():.4f}")
print("final: loss %.4f acc %.3f" % validate(model, x_val, y_val))
