# expect: healthy
# symptom: resembles the fault that inputs are mirrored at random though the label depends on the side, and the label stays
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn

CLASSES = ["arrow_left", "arrow_right", "arrow_up", "arrow_down", "no_entry"]
L, R = CLASSES.index("arrow_left"), CLASSES.index("arrow_right")
PARTNER = torch.arange(len(CLASSES))
PARTNER[L], PARTNER[R] = R, L

rng = np.random.default_rng(19)
torch.manual_seed(19)


def draw(kind):
    img = np.zeros((16, 16), dtype=np.float32)
    if kind == "no_entry":
        img[7:9, 3:13] = 1.0
        img[3:13, 7:9] = 1.0
        return img
    img[7:9, 3:13] = 1.0
    for k in range(5):
        img[7 - k, 12 - k] = img[8 + k, 12 - k] = 1.0
    turns = {"arrow_right": 0, "arrow_up": 1, "arrow_left": 2, "arrow_down": 3}[kind]
    return np.rot90(img, turns)


def make_set(n):
    lab = rng.integers(0, len(CLASSES), n)
    img = np.stack([draw(CLASSES[k]) for k in lab])
    shift = rng.integers(-2, 3, (n, 2))
    img = np.stack([np.roll(a, tuple(s), (0, 1)) for a, s in zip(img, shift)])
    img = img + 0.3 * rng.standard_normal(img.shape)
    return torch.tensor(img, dtype=torch.float32)[:, None], torch.tensor(lab)


def random_mirror(x, y):
    hit = torch.rand(len(x)) < 0.5
    x = x.clone()
    x[hit] = x[hit].flip(3)
    y = torch.where(hit, PARTNER[y], y)
    return x, y


net = nn.Sequential(
    nn.Conv2d(1, 16, 5, padding=2),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, len(CLASSES)),
)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
x_train, y_train = make_set(1000)
x_val, y_val = make_set(300)

for it in range(50):
    pick = torch.randint(0, 1000, (64,))
    xb, yb = random_mirror(x_train[pick], y_train[pick])
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 9:
        net.eval()
        with torch.no_grad():
            acc = (net(x_val).argmax(1) == y_val).float().mean().item()
        net.train()
        print(f"it {it + 1:2d}  loss {loss.item():.3f}  val acc {acc:.3f}")
