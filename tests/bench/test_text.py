"""The bench on a text: both sides are trained and scored as the bench says."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from course_lib.bench import text as bench
from course_lib.bench._plain_text import PlainGPT, train_plain
from course_lib.data.text import TextData
from course_lib.errors import UserError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(97 + (i * i + i // 5) % 26) for i in range(3000)), "utf-8")
    return path


def test_measures_both_sides_and_says_so(path):
    result = bench.run(path, seeds=2, steps_share=0.001)
    assert [row["seed"] for row in result.rows] == [0, 1]
    for row in result.rows:
        assert row["plain_time_s"] > 0
        assert row["ours_time_s"] > 0
        lower_by = row["plain_validation_loss"] - row["ours_validation_loss"]
        assert row["loss_lower_by"] == pytest.approx(lower_by, abs=2e-4)
        ratio = row["ours_parameters"] / row["plain_parameters"]
        assert 0.95 < ratio < 1.05, "not the same model size"
    times = [[row[f"{side}_time_s"] for row in result.rows] for side in ("plain", "ours")]
    assert result.speedup == pytest.approx(sum(times[0]) / sum(times[1]), rel=0.3)
    assert result.as_dict().keys() == {"name", "speedup", "rows", "notes"}


def test_scores_every_character_of_the_last_tenth_once(path):
    data = TextData.from_file(path, 64)
    torch.manual_seed(0)
    model = PlainGPT(data.vocab_size)
    total = torch.tensor(0.0)
    for first in range(0, len(data.validation) - 1, 64):
        window = data.validation[first : first + 65]
        logits = model(window[None, :-1])[0].detach()
        total += F.cross_entropy(logits, window[1:], reduction="sum")
    expected = total.item() / (len(data.validation) - 1)
    assert bench.validation_loss(model, data) == pytest.approx(expected, abs=1e-5)


def test_the_peer_learns(path):
    data = TextData.from_file(path, 64)
    model, time_s = train_plain(data.training, data.vocab_size, seed=0, steps=30)
    assert time_s > 0
    start = torch.tensor(float(data.vocab_size)).log().item()
    assert bench.validation_loss(model, data) < start - 0.05


def test_wrong_input(path):
    with pytest.raises(UserError, match="--text FILE"):
        bench.run()
    with pytest.raises(UserError, match="seeds is 0"):
        bench.run(path, seeds=0)
