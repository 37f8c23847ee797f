"""The bench of training steps compares equal work; how fast it is, is no test's business."""

import pytest
import torch

from course_lib.bench import train
from course_lib.bench._plain_encoder import PlainTransformer
from course_lib.config import ModelConfig
from course_lib.data.addition import Addition
from course_lib.errors import UserError
from course_lib.forward.model import Transformer
from course_lib.loss import cross_entropy
from course_lib.update.optimizers import AdamW


def test_the_cases_are_the_two_models_of_the_course() -> None:
    (addition, sums), (text, windows) = train.cases().values()
    assert (addition.layers, addition.width, sums.inputs.shape) == (2, 64, (256, 11))
    assert (text.layers, text.width, text.vocab_size) == (4, 128, 65)
    assert windows.inputs.shape == (12, 64)


@pytest.mark.parametrize("case", ["addition", "text"])
def test_both_sides_have_the_same_size_but_for_the_key_bias(case: str) -> None:
    config, _ = train.cases()[case]
    plain = sum(parameter.numel() for parameter in PlainTransformer(config).parameters())
    assert plain - Transformer(config).parameter_count() == config.layers * config.width


def test_the_peer_is_causal() -> None:
    plain = PlainTransformer(ModelConfig(13, 11))
    tokens = torch.randint(13, (2, 11))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 13
    assert torch.allclose(plain(tokens)[:, :-1], plain(changed)[:, :-1], atol=1e-6)
    assert not torch.allclose(plain(tokens)[:, -1], plain(changed)[:, -1], atol=1e-3)


def test_a_step_by_hand_is_a_step_by_autograd() -> None:
    batch = Addition(3).batch(0, 32)
    models = [
        Transformer(ModelConfig(13, 11), torch.Generator().manual_seed(0)).double()
        for _ in range(2)
    ]
    optimizers = [AdamW(model.parameters()) for model in models]
    for _ in range(3):
        train.autograd_step(models[0], optimizers[0], batch)
        train.by_hand_step(models[1], optimizers[1], batch)
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)


def test_every_contender_learns() -> None:
    config, batch = train.cases()["addition"]
    for step in train.contenders(config, batch).values():
        step()  # each owns its model: here only that it runs
    model = Transformer(config, torch.Generator().manual_seed(0))
    optimizer = AdamW(model.parameters(), lr=3e-3)
    before = cross_entropy(model(batch.inputs), batch.targets, batch.mask).item()
    for _ in range(10):
        train.by_hand_step(model, optimizer, batch)
    after = cross_entropy(model(batch.inputs), batch.targets, batch.mask).item()
    assert after < before - 0.2


def test_the_result_has_a_row_for_each_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = {"plain": 6.0, "fused": 4.0, "readable": 8.0, "by hand": 6.0, "autograd": 12.0}
    monkeypatch.setattr(train, "in_turn", lambda steps, rounds: {k: times_s[k] for k in steps})
    result = train.run(rounds=5)
    assert result.speedup == 1.5
    assert [row["speedup"] for row in result.rows] == [1.5, 0.75, 1.0, 0.5] * 2
    assert result.rows[0]["ours_tokens_per_s"] == 256 * 11 / 4
    with pytest.raises(UserError, match="rounds is 4"):
        train.run(rounds=4)


def test_medians_leave_the_warm_up_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(float(x) for x in range(1000))
    monkeypatch.setattr(train.time, "perf_counter", lambda: next(now))
    calls = []
    times_s = train.in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 5)
    assert calls == ["a", "b"] * (5 + train.WARMUP_ROUNDS)
    assert times_s == {"a": 1.0, "b": 1.0}
