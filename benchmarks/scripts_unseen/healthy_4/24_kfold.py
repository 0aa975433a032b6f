# expect: healthy
# cause: none, five folds are trained one after the other in one process, so the loss starts anew five times and each fold has its own optimizer
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(240)
torch.manual_seed(240)
N, K = 2000, 5
genes = rng.standard_normal((N, 60)).astype("float32")
pathway = np.maximum(genes[:, :6].sum(1), 0) - np.maximum(-genes[:, 6:12].sum(1), 0)
response = (pathway + 0.8 * genes[:, 12] + 0.5 * rng.standard_normal(N)).astype("float32")
response = (response - response.mean()) / response.std()


def make_model():
    return nn.Sequential(
        nn.Linear(60, 192), nn.ReLU(), nn.Dropout(0.3), nn.Linear(192, 96), nn.ReLU(), nn.Linear(96, 1), nn.Flatten(0)
    )


def fit_fold(train_idx, test_idx, epochs=6, bs=100):
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=epochs)
    X, y = torch.from_numpy(genes), torch.from_numpy(response)
    for epoch in range(epochs):
        model.train()
        losses = []
        for chunk in np.array_split(rng.permutation(train_idx), len(train_idx) // bs):
            loss = nn.functional.mse_loss(model(X[chunk]), y[chunk])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        print(f"    epoch {epoch} mse {np.mean(losses):.4f}")
    model.eval()
    with torch.no_grad():
        residual = model(X[test_idx]) - y[test_idx]
    return 1 - residual.var().item() / y[test_idx].var().item()


folds = np.array_split(rng.permutation(N), K)
scores = []
for k in range(K):
    print("fold", k + 1)
    train_idx = np.concatenate([f for j, f in enumerate(folds) if j != k])
    scores.append(fit_fold(train_idx, folds[k]))
print("explained variance per fold", np.round(scores, 3), "mean", round(float(np.mean(scores)), 3))
