"""The Trainer of transformers with `torch_compile_backend="oxyfuel"`: the losses of eager from the
same seed."""

import pytest
import torch

import oxyfuel

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

STEPS = 10


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=48, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def bert():
    config = transformers.BertConfig(
        vocab_size=48, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


class Texts(torch.utils.data.Dataset):
    """Random tokens and their labels."""

    def __init__(self, of_language):
        generator = torch.Generator().manual_seed(7)
        self.ids = torch.randint(3, 48, (40, 12), generator=generator)
        self.labels = torch.randint(3, (40,), generator=generator)
        self.of_language = of_language

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        labels = self.ids[i] if self.of_language else self.labels[i]
        return {"input_ids": self.ids[i], "labels": labels}


def trained(make, folder, **options):
    """The losses and norms of gradients of a training, and the weights behind it."""
    torch.manual_seed(0)
    model = make()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=3,
        **options,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Texts(make is gpt2))
    trainer.train()
    logs = [(log["loss"], log["grad_norm"]) for log in trainer.state.log_history if "loss" in log]
    assert len(logs) == STEPS
    return torch.tensor(logs), dict(model.state_dict())


CASES = {
    "plain": (gpt2, {}),
    "bert": (bert, {}),
    "accumulation": (gpt2, {"gradient_accumulation_steps": 2}),
    "bf16": (gpt2, {"bf16": True}),
    "checkpoints": (
        gpt2,
        {"gradient_checkpointing": True,
         "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    ),
    "reentrant checkpoints": (
        gpt2,
        {"gradient_checkpointing": True,
         "gradient_checkpointing_kwargs": {"use_reentrant": True}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_losses(name, tmp_path):
    make, options = CASES[name]
    oxyfuel.register_with_accelerate()
    torch._dynamo.reset()
    expected, weights = trained(make, tmp_path, **options)
    found, ours = trained(
        make, tmp_path, torch_compile=True, torch_compile_backend="oxyfuel", **options
    )
    torch._dynamo.reset()
    within = {"rtol": 2e-2, "atol": 2e-2} if name == "bf16" else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(found, expected, **within)
    assert list(ours) == list(weights)
    stats = oxyfuel.stats()
    assert stats["graphs"] > 0
    assert stats["fallbacks"] == stats["unsupported"] == stats["grad_fallbacks"] == 0


def test_what_accelerate_knows():
    from accelerate.utils import DynamoBackend, TorchDynamoPlugin

    oxyfuel.register_with_accelerate()
    oxyfuel.register_with_accelerate()
    assert TorchDynamoPlugin(backend="oxyfuel").to_dict()["backend"] == "oxyfuel"
    assert DynamoBackend("INDUCTOR") is DynamoBackend.INDUCTOR
    with pytest.raises(ValueError, match="NEITHER"):
        DynamoBackend("NEITHER")
