"""A scikit-learn estimator trains in fit, under clone, a pipeline and cross validation. Bare: a digest, status 0."""

import hashlib

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


def net(seed=0):
    """Make the same small network each time."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data(seed=1, rows=32):
    """Make the same samples and targets each time."""
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 4, generator=gen), torch.randn(rows, 1, generator=gen)


def train_step(model, opt, x, y):
    """Take one ordinary step and give its loss."""
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


class Network(RegressorMixin, BaseEstimator):
    """Trains a small network for a fixed number of steps."""

    def __init__(self, steps=10, rate=0.05):
        self.steps = steps
        self.rate = rate

    def fit(self, rows, targets):
        x = torch.tensor(rows, dtype=torch.float32)
        y = torch.tensor(targets, dtype=torch.float32).reshape(-1, 1)
        self.model_ = net()
        opt = torch.optim.SGD(self.model_.parameters(), lr=self.rate)
        self.losses_ = [train_step(self.model_, opt, x, y) for _ in range(self.steps)]
        return self

    def predict(self, rows):
        with torch.inference_mode():
            return np.asarray(self.model_(torch.tensor(rows, dtype=torch.float32)).flatten().tolist())


x, y = (np.asarray(part.tolist()) for part in data(rows=60))
scores = cross_val_score(make_pipeline(StandardScaler(), Network(12)), x, y.ravel(), cv=4)
last = clone(Network(8, 0.02)).fit(x, y.ravel())
print(last)
digest([float(score) for score in scores], last.losses_, last.model_)
