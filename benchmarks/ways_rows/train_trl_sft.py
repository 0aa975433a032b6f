# Title: TRL SFT
# Needs: trl
import case
import tiny_text
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

case.seed()
model = tiny_text.model()
case.poison(model.model.layers[1].mlp, 60)
rows = Dataset.from_list([{"text": tiny_text.text(24)} for _ in range(800)])
settings = SFTConfig(
    "out", learning_rate=case.rate(1e-3), per_device_train_batch_size=8, num_train_epochs=1, logging_steps=1,
    save_strategy="no", report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, seed=0,
)  # fmt: skip
trainer = SFTTrainer(model, settings, train_dataset=rows, processing_class=tiny_text.tokenizer())
with case.training(trainer.model) as log:
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            log.loss(entry["loss"])
    log.steps = trainer.state.global_step
