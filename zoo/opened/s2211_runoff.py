# expect: sick
# symptom: loss explodes within the first steps and becomes nan, although the trainer clips gradients to norm 1
# axis: optimizer
# cause: the parameters are held in a one-shot filter iterator that the optimizer constructor exhausts, so clip_grad_norm_ later receives an empty iterator and no gradient is ever clipped
# says: exhaust|(one-?shot|single-?use|already|once|lazy).{0,60}(consum|iterat|generator|filter|used up|drain)|(iterator|generator|filter( object)?|\bfilter\().{0,140}(consum|empty|empties|used up|drain|spent|depleted|nothing|once|no param)|(empty|no|zero|spent|consumed) (iterator|generator|param\w*|list of param\w*).{0,100}clip|clip.{0,140}(empty|no-?op|nothing|no param|never (actually |really )?(clip|appl|act|happen)|no effect|does not (clip|act)|not (actually )?(clip|applied|effective|happen)|ineffective)|(never|not|n.t) (actually |really |ever |being |get )*clipped
# onset_step: 1
# fix: make the parameter collection a list
# mended: yes
"""Rainfall-runoff emulator: recurrent network fed with daily forcing, predicts discharge."""

import logging
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("runoff")

CONFIG = dict(
    seed=23, window=120, batch=32, steps=600, hidden=48, lr=0.01, momentum=0.9, max_norm=1.0, catchments=40, years=6
)


def simulate_catchment(g, days):
    """Two linear reservoirs (quick and slow) with a soil moisture threshold."""
    wet = g.random(days) < 0.3
    rain = np.where(wet, g.gamma(0.7, 9.0, days), 0.0)
    storm = g.random(days) < 0.004
    rain = rain + storm * g.gamma(3.0, 25.0, days)
    doy = np.arange(days) % 365
    pet = 2.0 + 1.8 * np.sin(2 * np.pi * (doy - 90) / 365)
    quick = slow = 0.0
    soil = 30.0
    flow = np.zeros(days)
    for t in range(days):
        soil = min(max(soil + rain[t] - pet[t], 0.0), 120.0)
        excess = rain[t] * (soil / 120.0)
        soil -= 0.5 * excess
        quick += 0.8 * excess
        slow += 0.2 * excess
        q1, q2 = 0.45 * quick, 0.04 * slow
        quick -= q1
        slow -= q2
        flow[t] = q1 + q2
    return np.stack([rain, pet], 1).astype("float32"), flow.astype("float32")


class Basin:
    def __init__(self, cfg):
        g = np.random.default_rng(cfg["seed"])
        sims = [simulate_catchment(g, 365 * cfg["years"]) for _ in range(cfg["catchments"])]
        self.x = torch.from_numpy(np.stack([s[0] for s in sims]))
        self.y = torch.from_numpy(np.stack([s[1] for s in sims]))
        self.x = (self.x - self.x.mean((0, 1))) / self.x.std((0, 1))
        self.y = self.y / self.y.std()
        self.n_train = cfg["catchments"] - 8
        self.window = cfg["window"]
        self.g = g

    def sample(self, n):
        c = self.g.integers(0, self.n_train, n)
        t = self.g.integers(0, self.x.shape[1] - self.window, n)
        xs = torch.stack([self.x[i, j : j + self.window] for i, j in zip(c, t)])
        ys = torch.stack([self.y[i, j : j + self.window] for i, j in zip(c, t)])
        return xs, ys

    def test(self):
        return self.x[self.n_train :, :365], self.y[self.n_train :, :365]


class ReservoirNet(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.register_parameter("area_scale", nn.Parameter(torch.ones(1), requires_grad=False))
        self.rnn = nn.RNN(n_in, hidden, nonlinearity="relu", batch_first=True)
        nn.init.eye_(self.rnn.weight_hh_l0)
        self.rnn.weight_hh_l0.data.mul_(0.97)
        nn.init.normal_(self.rnn.weight_ih_l0, std=0.1)
        nn.init.zeros_(self.rnn.bias_hh_l0)
        nn.init.zeros_(self.rnn.bias_ih_l0)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h).squeeze(-1) * self.area_scale


class Trainer:
    def __init__(self, cfg, net, basin):
        self.cfg, self.net, self.basin = cfg, net, basin
        self.trainable = filter(lambda p: p.requires_grad, net.parameters())
        if os.environ.get("MENDED") == "1":
            self.trainable = list(self.trainable)
        self.opt = torch.optim.SGD(self.trainable, lr=cfg["lr"], momentum=cfg["momentum"])
        self.loss_fn = nn.MSELoss()
        self.spinup = 30

    def train_step(self):
        x, y = self.basin.sample(self.cfg["batch"])
        loss = self.loss_fn(self.net(x)[:, self.spinup :], y[:, self.spinup :])
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trainable, self.cfg["max_norm"])
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def nse(self):
        x, y = self.basin.test()
        p = self.net(x)[:, self.spinup :]
        y = y[:, self.spinup :]
        return 1.0 - ((p - y) ** 2).sum().item() / ((y - y.mean()) ** 2).sum().item()

    def fit(self):
        start, hist = time.time(), []
        for step in range(1, self.cfg["steps"] + 1):
            hist.append(self.train_step())
            if step % 20 == 0:
                log.info("step %d loss %.4f (%.1fs)", step, np.mean(hist[-20:]), time.time() - start)
            if step % 100 == 0:
                log.info("step %d test NSE %.3f", step, self.nse())


if __name__ == "__main__":
    torch.manual_seed(CONFIG["seed"])
    Trainer(CONFIG, ReservoirNet(2, CONFIG["hidden"]), Basin(CONFIG)).fit()
