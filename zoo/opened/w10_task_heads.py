# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: predictions are joined task by task, so each row gets the result of another row
# says: permut|un-?sort|argsort|(original|wrong|sorted|grouped|another) order|not (put|sorted|scattered|written) back|(wrong|other|another|different) (row|sample|token)|(row|token|output|result)s?.{0,40}(mixed|misalign|shuffl|scrambl)
# onset_step: 0
# fix: put the results back into the order of the rows
# mended: the inverse order
import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


def make_data(n=2400, n_tasks=4, d=12):
    g = torch.Generator().manual_seed(21)
    x = torch.randn(n, d, generator=g)
    task = torch.randint(0, n_tasks, (n,), generator=g)
    shared = torch.randn(d, 5, generator=g) / d**0.5
    own = torch.randn(n_tasks, 5, generator=g)
    y = (torch.tanh(x @ shared) * own[task]).sum(1) + 0.05 * torch.randn(n, generator=g)
    return TensorDataset(x, task, y)


class Trunk(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d)
        self.fc2 = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        return self.norm(h + torch.relu(self.fc2(h)))


class MultiTask(nn.Module):
    def __init__(self, d_in=12, d=48, n_tasks=4):
        super().__init__()
        self.trunk = Trunk(d_in, d)
        self.heads = nn.ModuleDict({f"task{t}": nn.Linear(d, 1) for t in range(n_tasks)})

    def forward(self, x, task):
        h = self.trunk(x)
        preds = []
        for t in torch.unique(task).tolist():
            rows = (task == t).nonzero(as_tuple=True)[0]
            preds.append(self.heads[f"task{t}"](h.index_select(0, rows)))
        joined = torch.vstack(preds).flatten()
        if MENDED:
            joined = joined[task.argsort(stable=True).argsort()]
        return joined


class Trainer:
    def __init__(self, model, loader, lr=3e-3):
        self.model = model
        self.loader = loader
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss_fn = nn.SmoothL1Loss()

    def step(self, x, task, y):
        self.opt.zero_grad(set_to_none=True)
        loss = self.loss_fn(self.model(x, task), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self, epochs):
        for e in range(epochs):
            losses = [self.step(*batch) for batch in self.loader]
            print(f"[{e + 1}/{epochs}] loss = {sum(losses) / len(losses):.4f}")


torch.manual_seed(0)
loader = DataLoader(make_data(), batch_size=80, shuffle=True)
Trainer(MultiTask(), loader).fit(6)
