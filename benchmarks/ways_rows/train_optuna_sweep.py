# Title: Optuna
# Needs: optuna
# Note: two trials in one process; the NaN is in the data of both
import case
import optuna
import torch
from torch.utils.data import DataLoader, TensorDataset

case.seed()
table = TensorDataset(*case.table())
model = case.mlp()


def objective(trial):
    rate = trial.suggest_float("rate", 5e-4, 1e-3, log=True)
    net = model if trial.number == 0 else case.mlp()
    optimizer = torch.optim.Adam(net.parameters(), lr=case.rate(rate))
    for inputs, targets in DataLoader(table, batch_size=case.BATCH, shuffle=True):
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if trial.number == 0:
            log.loss(loss)
    return loss.item()


study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
with case.training(model) as log:
    study.optimize(objective, n_trials=2)
