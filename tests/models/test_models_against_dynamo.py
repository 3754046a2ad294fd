"""A dozen of the architectures that `./dev models` checks: right, and cut no more often than
TorchDynamo cuts them."""

import pytest

pytest.importorskip("transformers")

import models  # noqa: E402
from model_cases import CASES  # noqa: E402
from model_check import check, first_difference  # noqa: E402

IN_CI = (
    "bert",
    "deberta_v2",
    "longformer",
    "gpt2",
    "llama",
    "mixtral",
    "dbrx",
    "switch_transformers",
    "mamba2",
    "t5",
    "bart",
    "vit",
    "resnet",
    "clip",
    "vilt",
    "wav2vec2",
    "whisper",
    "encodec",
)
TABLE = models.recorded()


@pytest.mark.parametrize("name", IN_CI)
def test_model(name, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    case = next(c for c in CASES if c.name == name)
    assert not models.verdict(check(case, calls=2), TABLE[name])


def test_long_t5_without_a_mask(monkeypatch):
    """It makes none where it is compiled, and needs one: torch.compile raises an AttributeError
    here."""
    import torch
    from model_cases import Case

    def inputs():
        ids = torch.randint(3, 64, (2, 64))
        return {"input_ids": ids, "decoder_input_ids": ids[:, :7]}

    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    case = next(c for c in CASES if c.name == "longt5")
    found = check(Case(case.name, case.family, "LongT5Model", case.config, case.settings, inputs))
    assert not found.difference
    assert found.counted.breaks <= 1  # eager looks at the values of its mask


def test_every_model_is_recorded():
    names = [c.name for c in CASES]
    assert len(set(names)) == len(names) >= 60
    assert set(names) <= set(TABLE)
    families = {c.family for c in CASES}
    assert len(families) >= 6


def test_differences_are_seen():
    import torch

    class Held:
        def __init__(self, value):
            self.value = value

    one = {"a": Held([torch.ones(2), 3])}
    for other in (
        {"b": Held([torch.ones(2), 3])},
        {"a": Held([torch.ones(2), 4])},
        {"a": Held([torch.zeros(2), 3])},
        {"a": Held([torch.ones(2, dtype=torch.float64), 3])},
        {"a": Held((torch.ones(2), 3))},
        {"a": Held([torch.ones(2)])},
        {"a": Held([torch.ones(2), None])},
    ):
        assert first_difference(one, other)
    assert not first_difference(one, {"a": Held([torch.ones(2), 3])})
