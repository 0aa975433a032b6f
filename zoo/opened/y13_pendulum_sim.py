# expect: sick
# symptom: the loss falls to nearly nothing and the model knows nothing
# axis: data
# cause: the environment returns its own state, which it goes on changing, so all kept entries are one object
# says: alias|(same|one) object|copy|in.?place|mutat|overwrit|reference|shares?\b|shared
# onset_step: 0
# fix: return a copy of the state
# mended: the same with the fix
import os
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


class PendulumSim:
    def __init__(self, n, dt=0.1):
        self.n, self.dt = n, dt
        self.x = torch.empty(n, 2)

    def reset(self):
        self.x.uniform_(-1.5, 1.5)
        return self.observe()

    def observe(self):
        return self.x.clone() if MENDED else self.x

    def step(self, torque):
        theta, omega = self.x[:, 0], self.x[:, 1]
        omega.add_(self.dt * (torque - torch.sin(theta) - 0.1 * omega))
        theta.add_(self.dt * omega)
        return self.observe()


@torch.no_grad()
def rollout(sim, length):
    states = [sim.reset()]
    torques = []
    for _ in range(length):
        u = torch.empty(sim.n).uniform_(-1, 1)
        states.append(sim.step(u))
        torques.append(u)
    return torch.stack(states), torch.stack(torques)


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x, u):
        return x + self.f(torch.cat([x, u[..., None]], dim=-1))


def main():
    torch.manual_seed(0)
    sim = PendulumSim(32)
    states, torques = rollout(sim, 30)
    x, u, y = states[:-1].flatten(0, 1), torques.flatten(), states[1:].flatten(0, 1)
    model = Dynamics()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(100):
        i = torch.randint(len(x), (64,))
        loss = nn.functional.mse_loss(model(x[i], u[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.6f}")

    with torch.no_grad():
        now = sim.reset().clone()
        push = torch.empty(sim.n).uniform_(-1, 1)
        guess = model(now, push)
        print(f"one-step error {nn.functional.mse_loss(guess, sim.step(push)).item():.6f}")


if __name__ == "__main__":
    main()
