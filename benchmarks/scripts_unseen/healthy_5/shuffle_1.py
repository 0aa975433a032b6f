# expect: healthy
# fault: none, features and labels are shuffled by separate calls, but the generator is put back to the same state before the second, so both get the same permutation
# onset_step: none
# says: (?!)
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(2)


def spirals(per_arm=500, arms=3, seed=0):
    r = np.random.RandomState(seed)
    xs, ys = [], []
    for k in range(arms):
        t = np.linspace(0.2, 1.0, per_arm)
        a = t * 4.5 + 2 * np.pi * k / arms
        xy = np.stack([t * np.cos(a), t * np.sin(a)], axis=1) + r.normal(0, 0.02, (per_arm, 2))
        extra = r.normal(0, 0.3, (per_arm, 2))
        xs.append(np.hstack([xy, extra]))
        ys.append(np.full(per_arm, k))
    return np.vstack(xs).astype(np.float32), np.concatenate(ys)


features, labels = spirals()

np.random.seed(77)
np.random.shuffle(features)
np.random.seed(77)
np.random.shuffle(labels)

n_train = 1200
ftrain, ftest = np.split(features, [n_train])
ltrain, ltest = np.split(labels, [n_train])

model = nn.Sequential(
    nn.Linear(4, 256),
    nn.SiLU(),
    nn.Linear(256, 256),
    nn.SiLU(),
    nn.Linear(256, 3),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()

size = 60
step = 0
for epoch in range(14):
    np.random.seed(epoch)
    np.random.shuffle(ftrain)
    np.random.seed(epoch)
    np.random.shuffle(ltrain)
    for i in range(0, n_train, size):
        xb = torch.tensor(ftrain[i : i + size])
        yb = torch.tensor(ltrain[i : i + size])
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        step += 1
    if epoch % 3 == 1:
        print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

with torch.no_grad():
    guess = model(torch.tensor(ftest)).argmax(1).numpy()
print("test accuracy", float((guess == ltest).mean()))
