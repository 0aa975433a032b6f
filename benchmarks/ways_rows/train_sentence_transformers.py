# Title: sentence-transformers
# Needs: sentence-transformers datasets accelerate
import case
import tiny_text
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from transformers import BertConfig, BertModel

case.seed()
sizes = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
BertModel(BertConfig(vocab_size=256, **sizes)).save_pretrained("tiny")
tiny_text.tokenizer().save_pretrained("tiny")
words = models.Transformer("tiny", max_seq_length=32)
model = SentenceTransformer(modules=[words, models.Pooling(96)], device="cpu")
case.poison(words.auto_model.encoder.layer[1].output.dense, 121)
texts = [tiny_text.text(12) for _ in range(1600)]
rows = Dataset.from_list([{"anchor": one, "positive": " ".join(one.split()[2:8])} for one in texts])
settings = SentenceTransformerTrainingArguments(
    "out", learning_rate=case.rate(2e-4), per_device_train_batch_size=16, num_train_epochs=1, logging_steps=1,
    save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=0,
)  # fmt: skip
loss = losses.MultipleNegativesRankingLoss(model)
trainer = SentenceTransformerTrainer(model, settings, train_dataset=rows, loss=loss)
with case.training(model) as log:
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            log.loss(entry["loss"])
    log.steps = trainer.state.global_step
