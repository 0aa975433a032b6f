# EXPECT: sick
# FAULT: epoch-wise scheduler stepped every batch, rate gone after a few steps
# ONSET: 4
# SAYS: learning rate|lr|rate|schedule
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

EPOCHS = 9
DECAY_EVERY = 3  # epochs


def load(n, seed):
    g = torch.Generator().manual_seed(seed)
    c = torch.randn(5, 20, generator=torch.Generator().manual_seed(0))
    y = torch.randint(0, 5, (n,), generator=g)
    x = c[y] + 1.2 * torch.randn(n, 20, generator=g)
    return TensorDataset(x, y)


def run():
    torch.manual_seed(30)
    train = DataLoader(load(640, 1), batch_size=64, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = StepLR(optimizer, step_size=DECAY_EVERY, gamma=0.1)
    for epoch in range(EPOCHS):
        correct = total = 0
        for x, y in train:
            optimizer.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            correct += (out.argmax(1) == y).sum().item()
            total += len(y)
        print(f"Epoch {epoch}: loss={loss.item():.4f} acc={correct / total:.3f}")


run()
