# Title: fastai, one cycle
# Needs: fastai
# Note: `fit_one_cycle` in mixed precision off, weight decay, gradient clipping by its callback
import case
import fastai.callback.schedule  # noqa: F401 (gives Learner its fit_one_cycle)
from fastai.basics import Callback, DataLoader, DataLoaders, Learner, MSELossFlat
from fastai.callback.training import GradientClip

case.seed()


class Losses(Callback):
    def after_batch(self):
        if self.training:
            log.loss(self.learn.loss)


inputs, targets = case.table()
rows = list(zip(inputs, targets, strict=True))
loaders = DataLoaders(DataLoader(rows, bs=case.BATCH, shuffle=True), DataLoader(rows[:256], bs=case.BATCH))
learner = Learner(loaders, case.mlp(), loss_func=MSELossFlat(), wd=0.01, cbs=[Losses(), GradientClip(1.0)])
with case.training(learner.model) as log:
    learner.fit_one_cycle(1, case.rate(1e-3))
