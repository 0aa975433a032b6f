# expect: sick
# cause: The gradients are never set to zero between steps, so each update uses the sum of all gradients since the start.
import torch
import torch.nn.functional as F

g = torch.Generator().manual_seed(29)
torch.manual_seed(29)

N_SENSORS, T, N_STATES = 6, 64, 6


def simulate(n):
    """vibration windows of a pump: each fault state has its own frequencies and coupling of sensors"""
    state = torch.randint(0, N_STATES, (n,), generator=g)
    t = torch.arange(T) / T
    freq = 3.0 + 2.5 * state.float() + 0.6 * torch.randn(n, generator=g)
    phase = 6.28 * torch.rand(n, N_SENSORS, generator=g)
    gain = 0.5 + torch.rand(n, N_SENSORS, generator=g)
    wave = gain[..., None] * torch.sin(6.28 * freq[:, None, None] * t + phase[..., None])
    return wave + 0.6 * torch.randn(n, N_SENSORS, T, generator=g), state


class Detector(torch.nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.c1 = torch.nn.Conv1d(N_SENSORS, width, 9, padding=4)
        self.c2 = torch.nn.Conv1d(width, width, 7, padding=3, stride=2)
        self.c3 = torch.nn.Conv1d(width, width, 5, padding=2, stride=2)
        self.fc = torch.nn.Linear(width, N_STATES)

    def forward(self, x):
        x = F.gelu(self.c1(x))
        x = F.gelu(self.c2(x))
        x = F.gelu(self.c3(x))
        return self.fc(x.mean(-1))


def main():
    x, y = simulate(2400)
    xv, yv = simulate(600)
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for it in range(1, 401):
        idx = torch.randint(0, len(x), (48,), generator=g)
        pred = model(x[idx])
        loss = F.cross_entropy(pred, y[idx])
        loss.backward()
        optimizer.step()
        if it % 40 == 0:
            with torch.no_grad():
                p = model(xv)
            print(
                "iter",
                it,
                "loss %.4f" % loss.item(),
                "val loss %.4f" % F.cross_entropy(p, yv).item(),
                "val acc %.3f" % (p.argmax(1) == yv).float().mean().item(),
            )


if __name__ == "__main__":
    main()
