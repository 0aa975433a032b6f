# Title: Lightning
# Needs: lightning
import case
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

case.seed()


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = case.mlp()

    def training_step(self, batch, place):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=case.rate(1e-3))


class Losses(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, place):
        log.loss(trainer.callback_metrics["loss"])


model = Regression()
loader = DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=1, logger=False, enable_checkpointing=False, callbacks=[Losses()], enable_progress_bar=False
)
with case.training(model) as log:
    trainer.fit(model, loader)
    log.steps = trainer.global_step
