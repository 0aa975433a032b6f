# Title: skorch
# Needs: skorch
import case
import torch
from skorch import NeuralNetRegressor
from skorch.callbacks import Callback

case.seed()


class Losses(Callback):
    def on_batch_end(self, net, batch=None, training=False, **kwargs):
        if training:
            log.loss(net.history[-1, "batches", -1, "train_loss"])


inputs, targets = case.table()
net = NeuralNetRegressor(
    case.mlp(), optimizer=torch.optim.Adam, lr=case.rate(1e-3), batch_size=case.BATCH, max_epochs=1,
    train_split=None, callbacks=[Losses()], iterator_train__shuffle=True, verbose=0,
).initialize()  # fmt: skip
with case.training(net.module_) as log:
    net.partial_fit(inputs.numpy(), targets.numpy())
