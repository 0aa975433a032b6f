# expect: sick
# symptom: the overall accuracy is high but the rare defects are never found, even though class weights are used
# axis: loss
# cause: the class weights are proportional to the class frequency, so the rare classes count even less
# says: (class )?weights?.*(invers|wrong|frequen|proportional|majority|reversed|rare|upside|backward|common)|invers.*(frequen|weight)
# onset_step: 0
# fix: weight each class by the inverse of its frequency
# mended: inverse frequencies
import os
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
np.random.seed(12)
torch.manual_seed(12)
NAMES = ["ok", "scratch", "dent", "stain"]


def castings(n):
    y = np.random.choice(4, n, p=[0.86, 0.08, 0.04, 0.02])
    proto = np.random.RandomState(0).normal(0, 0.55, (4, 20))
    return (proto[y] + np.random.normal(size=(n, 20))).astype("float32"), y


def class_weights(labels):
    counts = np.bincount(labels, minlength=4).astype("float32")
    if MENDED:
        w = counts.sum() / counts
    else:
        w = counts / counts.sum()
    return torch.tensor(w / w.mean(), dtype=torch.float32)


def recalls(model, x, y):
    with torch.no_grad():
        pred = model(x).argmax(1)
    return [((pred == c) & (y == c)).sum().item() / max(1, (y == c).sum().item()) for c in range(4)]


def main():
    x, y = castings(4000)
    xv, yv = castings(1500)
    weights = class_weights(y)
    print("weights", dict(zip(NAMES, weights.tolist())))
    x, y, xv, yv = map(torch.as_tensor, (x, y, xv, yv))
    model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
    criterion = nn.CrossEntropyLoss(weight=weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(6):
        losses = []
        for batch in torch.randperm(len(x)).split(80):
            optimizer.zero_grad()
            loss = criterion(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        r = recalls(model, xv, yv)
        print(
            f"epoch {epoch} loss {np.mean(losses):.4f} recall "
            + " ".join(f"{n}={v:.2f}" for n, v in zip(NAMES, r))
            + f" mean={np.mean(r):.2f}"
        )


main()
