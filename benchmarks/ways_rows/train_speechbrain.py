# Title: SpeechBrain
# Needs: speechbrain soundfile
import case
import speechbrain
import torch
from torch.utils.data import DataLoader, TensorDataset

case.seed()


class Regression(speechbrain.Brain):
    def compute_forward(self, batch, stage):
        return self.modules.net(batch[0])

    def compute_objectives(self, predicted, batch, stage):
        return torch.nn.functional.mse_loss(predicted, batch[1])

    def on_fit_batch_end(self, batch, outputs, loss, should_step):
        log.loss(loss)


brain = Regression(
    {"net": case.mlp()}, opt_class=lambda weights: torch.optim.Adam(weights, case.rate(1e-3)),
    run_opts={"device": "cpu"},
)  # fmt: skip
loader = DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True)
with case.training(brain.modules) as log:
    brain.fit(range(1), loader, progressbar=False)
