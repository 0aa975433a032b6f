"""Trains inside unittest cases with fixtures, subtests and a test that fails by design. Bare: a digest, status 0."""

import hashlib
import unittest

import torch

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


results = []


class Training(unittest.TestCase):
    def setUp(self):
        self.model = net()
        self.rows = data()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def tearDown(self):
        results.append([p.sum().item() for p in self.model.parameters()])

    def test_loss_falls(self):
        losses = [train_step(self.model, self.opt, *self.rows) for _ in range(10)]
        results.append(losses)
        assert losses[-1] < losses[0]

    def test_rates(self):
        for rate in (0.01, 0.1):
            with self.subTest(rate=rate):
                self.opt.param_groups[0]["lr"] = rate
                results.append([train_step(self.model, self.opt, *self.rows) for _ in range(5)])

    @unittest.expectedFailure
    def test_wrong(self):
        self.model(torch.zeros(2, 9))


suite = unittest.defaultTestLoader.loadTestsFromTestCase(Training)
outcome = unittest.TextTestRunner(verbosity=0).run(suite)
print(outcome.testsRun, outcome.wasSuccessful(), len(outcome.expectedFailures))
digest(results)
