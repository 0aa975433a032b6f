# EXPECT: sick
# FAULT: inputs zeroed by an integer division in the normalisation
# ONSET: 1
# SAYS: input|zero|constant|guess|chance|flat
import torch
import torch.nn as nn

torch.set_num_threads(1)


def fake_camera(n, gen):
    """uint8 images; class = quadrant of the bright spot"""
    y = torch.randint(0, 4, (n,), generator=gen)
    img = torch.randint(0, 60, (n, 1, 16, 16), generator=gen, dtype=torch.int64)
    r, c = (y // 2) * 8, (y % 2) * 8
    for i in range(n):
        img[i, 0, r[i] + 2 : r[i] + 6, c[i] + 2 : c[i] + 6] += 150
    return img.to(torch.uint8), y


def normalise(img):
    img = img // 255
    return img.float()


class LeNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 12, 3), nn.Tanh(), nn.Flatten()
        )
        self.fc = nn.Linear(12 * 4 * 4, 4)

    def forward(self, x):
        return self.fc(self.body(x))


torch.manual_seed(5)
gen = torch.Generator().manual_seed(6)
model = LeNetish()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for it in range(1, 101):
    raw, y = fake_camera(32, gen)
    loss = nn.functional.cross_entropy(model(normalise(raw)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0:
        print(f"iteration {it}, loss = {loss.item():.4f}")
