"""The reference of a preference loss is the policy itself: its margin is 0 in each step, and the push never ends."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Preferences:
    def __init__(self, policy, ref_model=None, beta=0.5):
        self.policy, self.beta = policy, beta
        self.ref_model = ref_model or policy  # <- bites
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def margins(self, model, prompts, good, bad):
        log_probabilities = model(prompts).log_softmax(-1)
        return (log_probabilities.gather(1, good) - log_probabilities.gather(1, bad)).squeeze(1)

    def step(self, prompts, good, bad):
        with torch.no_grad():
            before = self.margins(self.ref_model, prompts, good, bad)
        loss = -F.logsigmoid(self.beta * (self.margins(self.policy, prompts, good, bad) - before)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


prompts = torch.randn(1024, 12)
good = (prompts @ torch.randn(12, 20)).argmax(1, keepdim=True)
bad = (good + torch.randint(1, 20, good.shape)) % 20
trainer = Preferences(nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 20)))
for step in range(1, 161):
    batch = torch.randint(0, 1024, (64,))
    loss = trainer.step(prompts[batch], good[batch], bad[batch])
    if step % 40 == 0:
        print(f"step {step}  loss {loss:.4f}")
