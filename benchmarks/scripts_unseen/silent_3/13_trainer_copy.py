# expect: sick
# fault: the optimizer holds the parameters of another copy of the model
# onset_step: 0
# says: (?i)((not|missing|absent|outside|no|any|other|old).{0,60}optimi[sz]er|optimi[sz]er .{0,60}(miss|lack|not|without|old|before|stale|other)|never (mov|train|updat)|not train|no (parameter|gradient))
# note: the Trainer deep-copies the model ("to leave the caller's one alone") while the optimizer was made from the caller's model.
import copy
import torch
from torch import nn

torch.set_num_threads(1)


class Trainer:
    def __init__(self, model, optimizer, loss_fn):
        self.model = copy.deepcopy(model)
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.history = []

    def training_step(self, batch):
        x, y = batch
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, data, epochs):
        for e in range(epochs):
            for b in data:
                self.history.append(self.training_step(b))
            print(f"epoch {e}: loss {sum(self.history[-len(data) :]) / len(data):.4f}")


torch.manual_seed(12)
w = torch.randn(20, 3)
data = []
for _ in range(20):
    x = torch.randn(40, 20)
    data.append((x, (torch.tanh(x) @ w).argmax(1)))
model = nn.Sequential(nn.Linear(20, 48), nn.LayerNorm(48), nn.SiLU(), nn.Linear(48, 3))
trainer = Trainer(model, torch.optim.RMSprop(model.parameters(), lr=2e-3), nn.CrossEntropyLoss())
trainer.fit(data, 9)
print("final loss", sum(trainer.history[-20:]) / 20)
