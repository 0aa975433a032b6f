# Title: Composer
# Needs: mosaicml
import case
import torch
from composer import Callback, Trainer
from composer.models import ComposerModel
from composer.optim import DecoupledAdamW
from torch.utils.data import DataLoader, TensorDataset

case.seed()


class Regression(ComposerModel):
    def __init__(self):
        super().__init__()
        self.net = case.mlp()

    def forward(self, batch):
        return self.net(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.mse_loss(outputs, batch[1])


class Losses(Callback):
    def batch_end(self, state, logger):
        log.loss(state.loss)


model = Regression()
trainer = Trainer(
    model=model, optimizers=DecoupledAdamW(model.parameters(), lr=case.rate(1e-3)), max_duration="1ep", device="cpu",
    train_dataloader=DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True),
    callbacks=[Losses()], progress_bar=False,
)  # fmt: skip
with case.training(model) as log:
    trainer.fit()
