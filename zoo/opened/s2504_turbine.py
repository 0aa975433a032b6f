# expect: sick
# symptom: training is fine until the job is restarted from its checkpoint at step 300; right after that the loss shoots up and goes to inf/NaN
# axis: optimizer
# cause: after the restart the sensor towers are built in sorted order, so the optimizer's parameter groups come in another order than in the checkpoint, and load_state_dict, which goes by position, gives each tower the learning rate and momentum of another tower
# says: (order|position|permut|swap|mismatch|wrong (group|tower|param)|another (group|tower|param)|different (group|tower|param)|sort)[^.]*(group|optimi[sz]er|learning rate|momentum|tower|state)|(group|optimi[sz]er|learning rate|momentum|state)[^.]*(order|position|permut|swap|mismatch|wrong (group|tower|param)|another (group|tower|param)|different (group|tower|param)|sort)
# onset_step: 301
# fix: rebuild the towers in the order that the checkpoint records
# mended: yes
"""Late fusion of three turbine sensors for remaining-life regression, with restart from a checkpoint."""

import os
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)

WINDOW = 64
# amplitude of each raw channel (bar, g, degrees) and the learning rate tuned for its tower
SENSORS = {
    "vibration": dict(amplitude=0.05, lr=0.5),
    "temperature": dict(amplitude=1.5, lr=0.02),
    "pressure": dict(amplitude=25.0, lr=1e-4),
}


class TurbineData(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(WINDOW) / WINDOW
        wear = torch.rand(n, 3, generator=g)
        phase = torch.rand(n, 3, 1, generator=g) * 0.6
        base = torch.stack([torch.sin(2 * torch.pi * (k * t + phase[:, i])) for i, k in enumerate((5, 2, 3))], 1)
        trend = (t - 0.5) * 2
        x = 0.4 * base + (wear - 0.5)[:, :, None] * 2 * trend + 0.1 * torch.randn(n, 3, WINDOW, generator=g)
        self.x = {name: x[:, i] * cfg["amplitude"] for i, (name, cfg) in enumerate(SENSORS.items())}
        w = wear - 0.5
        self.y = 1.5 * w[:, 0] - w[:, 1] + 1.2 * w[:, 2] + 2 * w[:, 0] * w[:, 2]
        self.y = self.y + 0.05 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {k: v[i] for k, v in self.x.items()}, self.y[i]


class FusionNet(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.towers = nn.ModuleDict()
        for name in names:
            first = nn.Linear(WINDOW, 64)
            nn.init.normal_(first.weight, std=0.5 / (WINDOW**0.5 * SENSORS[name]["amplitude"]))
            self.towers[name] = first
        self.fuse = nn.Sequential(nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, batch):
        z = sum(tower(batch[name]) for name, tower in self.towers.items())
        return self.fuse(z).squeeze(-1)


def make_optimizer(model):
    groups = [{"params": tower.parameters(), "lr": SENSORS[name]["lr"]} for name, tower in model.towers.items()]
    groups.append({"params": model.fuse.parameters(), "lr": 0.02})
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9)


class Job:
    def __init__(self, names, seed):
        torch.manual_seed(seed)
        self.model = FusionNet(names)
        self.optimizer = make_optimizer(self.model)
        self.step = 0
        self.names = list(names)

    @classmethod
    def resume(cls, path, seed):
        state = torch.load(path, weights_only=True)
        names = state["sensors"] if os.environ.get("MENDED") == "1" else sorted(state["sensors"])
        job = cls(names, seed)
        job.model.load_state_dict(state["model"])
        job.optimizer.load_state_dict(state["optimizer"])
        job.step = state["step"]
        print(f"resumed from {os.path.basename(path)} at step {job.step}")
        return job

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "sensors": self.names,
            },
            path,
        )

    def train(self, loader, until):
        loss_fn = nn.MSELoss()
        while self.step < until:
            for batch, y in loader:
                loss = loss_fn(self.model(batch), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % 20 == 0:
                    print(f"step {self.step:4d} | train mse {loss.item():.4f}", flush=True)
                if self.step >= until:
                    return

    @torch.no_grad()
    def test(self, data):
        err = self.model(data.x) - data.y
        return err.pow(2).mean().item() / data.y.var().item()


if __name__ == "__main__":
    train_set, test_set = TurbineData(12000, 1), TurbineData(2000, 2)
    loader = torch.utils.data.DataLoader(
        train_set, batch_size=320, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(0)
    )
    with tempfile.TemporaryDirectory() as folder:
        ckpt = os.path.join(folder, "last.pt")
        job = Job(SENSORS, seed=0)
        job.train(loader, until=300)
        print(f"unexplained variance on the test set: {job.test(test_set):.4f}")
        job.save(ckpt)
        del job
        job = Job.resume(ckpt, seed=1)
        job.train(loader, until=900)
        print(f"unexplained variance on the test set: {job.test(test_set):.4f}")
