"""A tiny GPT-2 made from a config, trained with the real Trainer of transformers.

trainer.py FOLDER TOTAL SHARD_SIZE JIT: leaves FOLDER/checkpoint-1 and FOLDER/checkpoint-2, and each child saves
checkpoint-3 (and rotates, with a save_total_limit of TOTAL) in a folder of its own. With JIT=1 the child saves
checkpoint-2 a second time instead, as the Trainer's own callback for SIGTERM does, and files are larger than 1 MiB.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings

from forking import done, serve

warnings.filterwarnings("ignore")
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")

import torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(7)
FOLDER, TOTAL, SHARD_SIZE, JIT = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1"


class Forks(TrainerCallback):
    """Forks where the third save begins."""

    def on_step_end(self, args, state, control, **more):
        if state.global_step == (2 if JIT else 3):
            if JIT:
                trainer._save_checkpoint(trainer.model, trial=None)
            folder = serve()
            args.output_dir = folder
            if JIT:
                from transformers.trainer_jit_checkpoint import CheckpointManager

                CheckpointManager(trainer).execute_jit_checkpoint()
                done()

    def on_save(self, args, state, control, **more):
        if state.global_step == 3:
            done()


class Sharded(GPT2LMHeadModel):
    """Saves in shards, as a large model does."""

    def save_pretrained(self, folder, **more):
        super().save_pretrained(folder, max_shard_size=SHARD_SIZE, **more)


config = GPT2Config(
    n_layer=2, n_embd=128 if JIT else 32, n_head=2, vocab_size=4096 if JIT else 64, n_positions=16,
    bos_token_id=None, eos_token_id=None,
)  # fmt: skip
data = [{"input_ids": list(range(n, n + 8)), "labels": list(range(n, n + 8))} for n in range(32)]
arguments = TrainingArguments(
    output_dir=FOLDER, per_device_train_batch_size=2, max_steps=4, save_steps=1, logging_steps=1, report_to=[],
    save_total_limit=TOTAL, use_cpu=True, seed=7, disable_tqdm=True, dataloader_num_workers=0,
    enable_jit_checkpoint=JIT,
)  # fmt: skip
shutil.rmtree(FOLDER, ignore_errors=True)
model = (GPT2LMHeadModel if SHARD_SIZE == "0" else Sharded)(config)
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Forks()])
trainer.train()
