# expect: healthy
# symptom: resembles unshuffled data, hidden state leaking between batches and loss spikes: the batches come in time order, the state is carried, the loss jumps whenever the machines change their mode and part of the gradients is clipped
# axis: none
# cause: healthy: stateful truncated backpropagation needs ordered batches, the state is detached, the jumps are real changes of the signal from which the model recovers at once
# says: none
# onset_step: none
# fix: none
# mended: none
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def machine_signal(streams, length, seed):
    """Vibration of several machines; all change their mode (frequency and amplitude) at the same shift change."""
    rng = np.random.default_rng(seed)
    freq = np.array([0.21, 0.83, 0.45, 1.27])
    amp = np.array([1.0, 0.7, 1.6, 1.2])
    out = np.zeros((streams, length))
    phase = rng.uniform(0, 2 * np.pi, streams)
    mode = rng.integers(0, 4, streams)
    for t in range(length):
        if t % 2000 == 0:
            mode = (mode + rng.integers(1, 4, streams)) % 4
            phase = phase + rng.uniform(0, np.pi, streams)
            out[:, t] += rng.normal(0, 4.0, streams)
        phase = phase + freq[mode]
        out[:, t] += amp[mode] * (np.sin(phase) + 0.4 * np.sin(2 * phase)) + rng.normal(0, 0.08, streams)
    return torch.tensor(out, dtype=torch.float32)


class NextSample(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.cell = nn.LSTM(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, state):
        h, state = self.cell(x.unsqueeze(-1), state)
        return x + self.out(h).squeeze(-1), state


def main():
    torch.manual_seed(6)
    chunk = 32
    signal = machine_signal(streams=16, length=chunk * 600 + 1, seed=6)
    naive = (signal[:, 1:] - signal[:, :-1]).pow(2).mean().item()
    print(f"repeat-last mse {naive:.4f}")

    model = NextSample()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    state = None
    window = []
    for step in range(1, 601):
        a = (step - 1) * chunk
        x, y = signal[:, a : a + chunk], signal[:, a + 1 : a + chunk + 1]
        pred, state = model(x, state)
        state = tuple(s.detach() for s in state)
        loss = (pred - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        opt.step()
        window.append(loss.item())
        if step % 25 == 0:
            print(f"step {step} mean {np.mean(window):.4f} max {max(window):.4f} norm {norm:.3f}")
            window = []

    test = machine_signal(streams=8, length=2000, seed=77)
    with torch.no_grad():
        pred, _ = model(test[:, :-1], None)
    print(
        f"test mse {(pred - test[:, 1:]).pow(2).mean().item():.4f} "
        f"(repeat-last {(test[:, 1:] - test[:, :-1]).pow(2).mean().item():.4f})"
    )


if __name__ == "__main__":
    main()
