# Title: TRL DPO
# Needs: trl
import copy

import case
import tiny_text
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

case.seed()
model = tiny_text.model()
reference = copy.deepcopy(model)
case.poison(model.model.layers[1].mlp, 60)
rows = [{"prompt": tiny_text.text(8), "chosen": tiny_text.text(8), "rejected": tiny_text.text(8)} for _ in range(800)]
settings = DPOConfig(
    "out", learning_rate=case.rate(5e-4), per_device_train_batch_size=8, num_train_epochs=1, logging_steps=1,
    save_strategy="no", report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, seed=0,
)  # fmt: skip
tokenizer = tiny_text.tokenizer()
trainer = DPOTrainer(model, reference, settings, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
with case.training(trainer.model) as log:
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            log.loss(entry["loss"])
    log.steps = trainer.state.global_step
