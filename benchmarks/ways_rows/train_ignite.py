# Title: PyTorch Ignite
# Needs: pytorch-ignite
import case
import torch
from ignite.engine import Events, create_supervised_trainer
from torch.utils.data import DataLoader, TensorDataset

case.seed()
model = case.mlp()
optimizer = torch.optim.Adam(model.parameters(), lr=case.rate(1e-3))
loader = DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True)
trainer = create_supervised_trainer(model, optimizer, torch.nn.MSELoss())


@trainer.on(Events.ITERATION_COMPLETED)
def keep(engine):
    log.loss(engine.state.output)


with case.training(model) as log:
    trainer.run(loader, max_epochs=1)
    log.steps = trainer.state.iteration
