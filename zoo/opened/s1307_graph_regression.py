# expect: sick
# symptom: the loss sinks to the variance of the target and stays; all predictions are close to the mean, R2 about 0
# axis: loss
# cause: the prediction has shape (B, 1) and the target (B,): the difference broadcasts to (B, B), so each prediction is pulled to every target and the best answer is the mean
# says: broadcast|shape.{0,80}(mismatch|differ\w*|not match|\(?\w+, ?1\)?)|(B|N|batch|64), ?(B|N|batch|64|batch_size)\b.{0,40}|(missing|forgot\w*|needs?|add|without|lacks?).{0,30}(squeeze|unsqueeze|view|reshape)|(squeeze|unsqueeze).{0,40}(target|pred|output|label|y\b)|(pred|output|target|label)\w*.{0,60}(extra|trailing|singleton) dim
# onset_step: 0
# fix: squeeze the prediction to (B,) before the loss
# mended: the prediction is squeezed to (B,)
import os
import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)
rng = np.random.default_rng(2)

N_ATOMS, N_TYPES = 14, 6
VALENCE = torch.tensor([0.4, -0.9, 1.1, 0.2, -0.5, 0.8])


def make_molecules(n):
    """Random trees with a few rings; the property depends on bonded pairs of atom types and on degrees."""
    types = torch.zeros(n, N_ATOMS, dtype=torch.long)
    adj = torch.zeros(n, N_ATOMS, N_ATOMS)
    mask = torch.zeros(n, N_ATOMS)
    for g in range(n):
        k = int(rng.integers(6, N_ATOMS + 1))
        types[g, :k] = torch.from_numpy(rng.integers(0, N_TYPES, size=k))
        mask[g, :k] = 1
        for j in range(1, k):
            i = int(rng.integers(max(0, j - 4), j))
            adj[g, i, j] = adj[g, j, i] = 1
        if rng.random() < 0.6:
            i, j = rng.choice(k, size=2, replace=False)
            adj[g, i, j] = adj[g, j, i] = 1
    v = VALENCE[types] * mask
    pair = torch.einsum("gi,gij,gj->g", v, adj, v) / 2
    deg = (adj.sum(-1) - 2).clamp(min=0).sum(-1)
    y = pair + 0.5 * deg + 0.3 * v.sum(-1)
    return types, adj, mask, y + 0.05 * torch.randn(n)


class GraphConv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self_lin, self.nb_lin = nn.Linear(d, d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, h, adj):
        return h + self.mlp(self.self_lin(h) + adj @ self.nb_lin(h))


class MoleculeNet(nn.Module):
    def __init__(self, d=64, layers=3):
        super().__init__()
        self.emb = nn.Embedding(N_TYPES, d)
        self.convs = nn.ModuleList(GraphConv(d) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, types, adj, mask):
        h = self.emb(types)
        for conv in self.convs:
            h = conv(h, adj)
        return self.readout((h * mask[..., None]).sum(1) / 10)


class MSE(nn.Module):
    def forward(self, pred, target):
        return ((pred - target) ** 2).mean()


class Trainer:
    def __init__(self, model, data, val, lr=1e-3, batch_size=64):
        self.model, self.data, self.val, self.bs = model, data, val, batch_size
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss_fn = MSE()
        y = data[3]
        self.mean, self.std = y.mean(), y.std()
        self.step = 0

    def train_epoch(self):
        order = torch.randperm(len(self.data[3]))
        for i in range(0, len(order) - self.bs + 1, self.bs):
            types, adj, mask, y = [t[order[i : i + self.bs]] for t in self.data]
            pred = self.model(types, adj, mask)
            if MENDED:
                pred = pred.squeeze(-1)
            loss = self.loss_fn(pred, (y - self.mean) / self.std)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if self.step % 25 == 0:
                print(f"step {self.step:4d} loss {loss.item():.4f}")
            self.step += 1

    @torch.no_grad()
    def r2(self):
        types, adj, mask, y = self.val
        pred = self.model(types, adj, mask).flatten() * self.std + self.mean
        return (1 - ((pred - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()).item()


trainer = Trainer(MoleculeNet(), make_molecules(3000), make_molecules(400))
for epoch in range(12):
    trainer.train_epoch()
    print(f"epoch {epoch} val R2 {trainer.r2():.3f}")
