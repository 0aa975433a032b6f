# expect: healthy
# symptom: resembles the fault that the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DT = 0.2


class TankCell(nn.Module):
    """Backward-Euler step of dh/dt = -rate * h + inflow."""

    def __init__(self, n_tanks):
        super().__init__()
        self.raw_rate = nn.Parameter(torch.linspace(-1.0, 2.0, n_tanks))
        self.inflow = nn.Linear(1, n_tanks)

    def forward(self, rain, level):
        growth = 1.0 + DT * F.softplus(self.raw_rate)
        return (level + DT * F.softplus(self.inflow(rain))) / growth


class RunoffModel(nn.Module):
    def __init__(self, n_tanks=12):
        super().__init__()
        self.n_tanks = n_tanks
        self.cell = TankCell(n_tanks)
        self.outlet = nn.Linear(n_tanks, 1)

    def forward(self, rain):
        level = rain.new_zeros(rain.size(0), self.n_tanks)
        total = rain.new_zeros(rain.size(0), 1)
        flows = []
        for t in range(rain.size(1)):
            level = self.cell(rain[:, t], level)
            total = total + rain[:, t]
            flows.append(self.outlet(level) + 0.001 * total)
        return torch.stack(flows, dim=1)


def catchment(n, length, rng):
    rain = rng.gamma(0.3, 2.0, size=(n, length)).astype(np.float32)
    flow = np.zeros_like(rain)
    store = np.zeros(n, dtype=np.float32)
    for t in range(length):
        store = 0.85 * store + rain[:, t]
        flow[:, t] = 0.15 * store
    noise = 0.02 * rng.standard_normal(flow.shape).astype(np.float32)
    return torch.from_numpy(rain)[..., None], torch.from_numpy(flow + noise)[..., None]


def main():
    torch.manual_seed(10)
    rng = np.random.default_rng(10)
    rain, flow = catchment(256, 40, rng)
    rain_v, flow_v = catchment(64, 40, rng)
    model = RunoffModel()
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step in range(40):
        rows = torch.randperm(len(rain))[:64]
        loss = F.mse_loss(model(rain[rows]), flow[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            with torch.no_grad():
                val = F.mse_loss(model(rain_v), flow_v).item()
            print(f"step {step + 1} train {loss.item():.4f} val {val:.4f}")


if __name__ == "__main__":
    main()
