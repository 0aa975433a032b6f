# expect: sick
# cause: Spectra and labels are permuted with two different permutations when the set is shuffled before the split, so the labels no longer belong to the rows.
import numpy as np
import torch
import torch.nn as nn

np.random.seed(2024)
torch.manual_seed(2024)

BANDS, SOILS = 120, 5
wave = np.linspace(400, 2500, BANDS)
centres = np.array([[600, 1400, 2200], [900, 1400, 1900], [500, 1900, 2300], [700, 1150, 2200], [900, 1600, 2350]])


def spectrum(soil):
    s = 0.3 + 0.3 * (wave - 400) / 2100 * np.random.uniform(0.5, 1.5)
    for c in centres[soil]:
        s = s - np.random.uniform(0.03, 0.12) * np.exp(-((wave - c - 10 * np.random.randn()) ** 2) / 3000)
    return s + 0.015 * np.random.randn(BANDS)


labels = np.repeat(np.arange(SOILS), 500)
spectra = np.stack([spectrum(s) for s in labels])
spectra = (spectra - spectra.mean(0)) / spectra.std(0)

# the file is ordered by soil, so shuffle before the split
spectra = spectra[np.random.permutation(len(spectra))]
labels = labels[np.random.permutation(len(labels))]
X = torch.tensor(spectra, dtype=torch.float32)
Y = torch.tensor(labels)
X_train, Y_train, X_test, Y_test = X[:2000], Y[:2000], X[2000:], Y[2000:]

model = nn.Sequential(
    nn.Unflatten(1, (1, BANDS)),
    nn.Conv1d(1, 24, 7, padding=3),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(24, 32, 5, padding=2),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(32 * 30, SOILS),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
loss_func = nn.CrossEntropyLoss()
for epoch in range(7):
    model.train()
    perm = torch.randperm(2000)
    train_loss = 0.0
    for b in range(0, 2000, 40):
        i = perm[b : b + 40]
        loss = loss_func(model(X_train[i]), Y_train[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train_loss += loss.item() / 50
    model.eval()
    with torch.no_grad():
        out = model(X_test)
    print(
        f"epoch {epoch}: train {train_loss:.4f} test {loss_func(out, Y_test):.4f} accuracy {(out.argmax(1) == Y_test).float().mean():.3f}"
    )
