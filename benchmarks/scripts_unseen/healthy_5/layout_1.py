# expect: healthy
# fault: none, flat rows are stored colour plane by colour plane, so viewing them as N,3,H,W is right; the channel shuffle views, transposes and reshapes on purpose
# onset_step: none
# says: (?!)
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(0)
rng = np.random.default_rng(0)

H = W = 16
N = 1500
labels = rng.integers(0, 5, N)
rows = np.empty((N, H * W * 3), dtype=np.float32)
for n in range(N):
    planes = rng.normal(0.0, 0.5, size=(3, H, W))
    k = labels[n]
    off = rng.integers(0, 4)
    if k == 0:
        planes[0, off::4, :] += 1.0
    elif k == 1:
        planes[0, :, off::4] += 1.0
    elif k == 2:
        planes[1, off::4, :] += 1.0
    elif k == 3:
        planes[2, :, off::4] += 1.0
    else:
        planes[:, 4 + off : 10 + off, 4:10] += 0.8
    rows[n] = np.concatenate([p.ravel() for p in planes])

X = torch.from_numpy(rows)
Y = torch.from_numpy(labels)


class Mix(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, self.groups, c // self.groups, h, w)
        return x.transpose(1, 2).reshape(b, c, h, w)


def unit(cin, cout, groups, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 1, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        Mix(groups),
        nn.Conv2d(cout, cout, 3, stride=stride, padding=1, groups=cout, bias=False),
        nn.BatchNorm2d(cout),
        nn.Conv2d(cout, cout, 1, groups=groups),
        nn.ReLU(),
    )


class Rows2Image(nn.Module):
    def forward(self, x):
        return x.view(x.size(0), 3, H, W)


model = nn.Sequential(
    Rows2Image(),
    nn.Conv2d(3, 24, 3, padding=1),
    unit(24, 48, 3, 2),
    unit(48, 48, 4, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(48, 5),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
loss_fn = nn.CrossEntropyLoss()

for it in range(160):
    pick = torch.randint(0, 1300, (48,))
    optimizer.zero_grad()
    loss = loss_fn(model(X[pick]), Y[pick])
    loss.backward()
    optimizer.step()
    if it % 40 == 39:
        print(it + 1, "loss", round(loss.item(), 4))

model.eval()
with torch.no_grad():
    print("accuracy", (model(X[1300:]).argmax(1) == Y[1300:]).float().mean().item())
