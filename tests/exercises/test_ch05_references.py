"""The rules that chapter 05's checks compare with are torch's own."""

import torch

from course_lib.teach.exercises.ch05 import right_rates
from course_lib.teach.exercises.ch05_steps import adamw_reference, random_tensors, sgd_reference


def gradients(steps: int) -> list[torch.Tensor]:
    return [random_tensors([(5,)], step)[0].double() for step in range(steps)]


def test_sgd_equals_torchs():
    p, b = torch.ones(5).double(), torch.zeros(5).double()
    torchs = p.clone().requires_grad_()
    optimizer = torch.optim.SGD([torchs], lr=0.1, momentum=0.9)
    for g in gradients(20):
        torchs.grad = g.clone()
        optimizer.step()
        sgd_reference(p, g, b, 0.1, 0.9)
    torch.testing.assert_close(p, torchs.detach())
    torch.testing.assert_close(b, optimizer.state[torchs]["momentum_buffer"])


def test_adamw_equals_torchs():
    p, m, v = torch.ones(5).double(), torch.zeros(5).double(), torch.zeros(5).double()
    torchs = p.clone().requires_grad_()
    optimizer = torch.optim.AdamW([torchs], lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.5)
    for t, g in enumerate(gradients(20), start=1):
        torchs.grad = g.clone()
        optimizer.step()
        adamw_reference(p, g, m, v, t, 0.1, (0.8, 0.95), 1e-3, 0.5)
    torch.testing.assert_close(p, torchs.detach())
    torch.testing.assert_close(v, optimizer.state[torchs]["exp_avg_sq"])


def test_rates_equal_torchs_cosine_after_the_warm_up():
    total, peak, warmup, low = 12, 0.4, 3, 0.1
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - 1 - warmup, eta_min=low)
    for rate in right_rates(total, peak, warmup, low)[warmup:]:
        assert abs(rate - optimizer.param_groups[0]["lr"]) < 1e-12
        optimizer.step()
        cosine.step()
