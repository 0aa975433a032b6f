# EXPECT: sick
# FAULT: inputs shuffled without their labels, loss flat at the guess
# ONSET: 1
# SAYS: label|guess|chance|flat|not learn|no progress|plateau
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(90)
np.random.seed(90)

n_class, n = 7, 4000
mu = np.random.randn(n_class, 15)
labels = np.random.randint(0, n_class, n)
images = mu[labels] + 0.7 * np.random.randn(n, 15)
images = images.astype("float32")


def shuffle(x, y):
    np.random.shuffle(x)
    return x, y


images, labels = shuffle(images, labels)
split = int(0.9 * n)
xtr, ytr = torch.from_numpy(images[:split]), torch.from_numpy(labels[:split])
xva, yva = torch.from_numpy(images[split:]), torch.from_numpy(labels[split:])

mlp = nn.Sequential(nn.Linear(15, 50), nn.ReLU(), nn.Linear(50, n_class))
opt = torch.optim.Adam(mlp.parameters(), lr=1e-3)
lossfn = nn.CrossEntropyLoss()
step = 0
for ep in range(2):
    for k in range(0, split, 50):
        opt.zero_grad()
        l = lossfn(mlp(xtr[k : k + 50]), ytr[k : k + 50])
        l.backward()
        opt.step()
        step += 1
        if step % 24 == 0:
            print("step", step, "loss", l.item())
    with torch.no_grad():
        print("val acc", (mlp(xva).argmax(1) == yva).float().mean().item())
