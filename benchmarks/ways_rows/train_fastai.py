# Title: fastai
# Needs: fastai
# Note: its own Adam; loss of each batch
import case
from fastai.basics import Callback, DataLoader, DataLoaders, Learner, MSELossFlat

case.seed()


class Losses(Callback):
    def after_batch(self):
        if self.training:
            log.loss(self.learn.loss)


inputs, targets = case.table()
rows = list(zip(inputs, targets, strict=True))
loaders = DataLoaders(DataLoader(rows, bs=case.BATCH, shuffle=True), DataLoader(rows[:256], bs=case.BATCH))
learner = Learner(loaders, case.mlp(), loss_func=MSELossFlat(), cbs=[Losses()])
with case.training(learner.model) as log:
    learner.fit(1, case.rate(1e-3))
