# expect: sick
# symptom: held-out rows are worse than they need to be
# axis: data
# cause: inputs of two rows are mixed and the labels are not mixed alike
# says: (mix|lam|cut.?mix|blend).{0,160}(label|target)|(label|target).{0,120}(mix|lam|permut|order|weight)
# onset_step: 0
# fix: mix the labels with the weights of the inputs
# mended: the same with the fix
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(0)
np.random.seed(0)
torch.set_num_threads(1)


def make_spectra(n, classes=6, width=32):
    """Peaks at class-dependent places on a noisy baseline."""
    y = torch.randint(0, classes, (n,))
    grid = torch.arange(width).float()
    place = 3 + 5.0 * y[:, None] + torch.randn(n, 1)
    height = 1.5 + 0.5 * torch.rand(n, 1)
    x = height * torch.exp(-0.5 * ((grid - place) / 1.5) ** 2)
    return x + 0.6 * torch.randn(n, width), y


def mixup_data(x, y, alpha=1.0):
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1.0
    index = torch.randperm(x.size(0))
    mixed_x = lam * x + (1 - lam) * x[index]
    return mixed_x, y, y[index], lam


train_loader = DataLoader(TensorDataset(*make_spectra(640)), batch_size=32, shuffle=True)
test_x, test_y = make_spectra(500)

model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

for epoch in range(1, 11):
    model.train()
    total = 0.0
    for inputs, targets in train_loader:
        inputs, targets_a, targets_b, lam = mixup_data(inputs, targets)
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        if MENDED:
            loss = lam * criterion(outputs, targets_a) + (1 - lam) * criterion(outputs, targets_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        logits = model(test_x)
        test_loss = criterion(logits, test_y).item()
        acc = (logits.argmax(1) == test_y).float().mean().item()
    print(f"epoch {epoch} train {total / len(train_loader):.4f} test {test_loss:.4f} acc {acc:.3f}")
