"""What all optimizers share: one flat buffer for the gradients and the state, and the step itself.

The gradients of a group are copied end to end into one buffer, so that a rule costs a few
operations for the whole model, and not a few for each of its parameters. The bookkeeping is that of
`torch.optim.Optimizer` (param_groups, state_dict, schedulers): each parameter's state is a view of
the flat one, under torch's own names.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer


def apply_direction(
    params: list[Tensor], direction: list[Tensor], lr: float, weight_decay: float
) -> None:
    """Take the step: p <- (1 - lr * weight_decay) * p - lr * direction, in place.

    Args:
        params: the parameters; changed in place.
        direction: one tensor for each parameter, of its shape.
        lr: the learning rate.
        weight_decay: the share, times lr, by which each parameter shrinks (0 leaves it alone).
    """
    if weight_decay:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_add_(params, direction, alpha=-lr)


class FlatRun(NamedTuple):
    """Parameters that take their steps together, and the flat buffers that they share."""

    params: list[Tensor]
    grad: Tensor
    grad_views: list[Tensor]  # grad, cut and shaped as the parameters are
    state: dict[str, Tensor]


class FlatOptimizer(Optimizer):
    """What SGD, Adam and AdamW share: everything but the rule itself.

    A rule gives `_state_names` and `_direction`; its defaults hold lr, weight_decay, and decoupled
    (True: the decay acts on the parameter; False: on the gradient).
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        self._runs: dict[int, tuple[tuple[int, ...], list[FlatRun]]] = {}

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """What the rule remembers of each parameter."""
        raise NotImplementedError

    def _direction(self, group: dict[str, Any], run: FlatRun, step: int) -> Tensor:
        """The rule: turn run.grad and run.state into the direction to walk against."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Change every parameter that has a gradient, once.

        Args:
            closure: as in torch.optim: computes the loss again, with gradients on.

        Returns:
            What closure returned, or None.

        Raises:
            ValueError: if a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            for run in self._runs_of(index, group):
                self._step_run(group, run)
        return loss

    def _step_run(self, group: dict[str, Any], run: FlatRun) -> None:
        step = self.state[run.params[0]]["step"] + 1
        for param in run.params:
            self.state[param]["step"] = step
        torch.cat([param.grad.reshape(-1) for param in run.params], out=run.grad)  # type: ignore[union-attr]
        decay = group["weight_decay"]
        if decay and not group["decoupled"]:  # L2: the decay goes through the rule
            torch._foreach_add_(run.grad_views, run.params, alpha=decay)
        direction = self._direction(group, run, step)
        views = run.grad_views if direction is run.grad else _cut(direction, run.params)
        apply_direction(run.params, views, group["lr"], decay if group["decoupled"] else 0.0)

    def _runs_of(self, index: int, group: dict[str, Any]) -> list[FlatRun]:
        """Plan the flat buffers of a group, or find them where the same parameters have gradients.

        A parameter without a gradient takes no step and keeps its own count of steps, as in torch;
        so parameters share a buffer if they agree in dtype, device and step.
        """
        live = [param for param in group["params"] if param.grad is not None]
        key = tuple(map(id, live))
        known = self._runs.get(index)
        if known is not None and known[0] == key:
            return known[1]
        alike: dict[Any, list[Tensor]] = defaultdict(list)
        for param in live:
            if param.grad.is_sparse:
                raise ValueError(
                    f"{type(self).__name__} takes dense gradients, and one of shape "
                    f"{tuple(param.shape)} is sparse: make its embedding with sparse=False"
                )
            self.state[param].setdefault("step", 0)
            alike[param.dtype, param.device, int(self.state[param]["step"])].append(param)
        names = self._state_names(group)
        runs = [self._flatten(params, names) for params in alike.values()]
        self._runs[index] = (key, runs)
        return runs

    def _flatten(self, params: list[Tensor], names: tuple[str, ...]) -> FlatRun:
        state = {}
        for name in names:
            parts = [self.state[param].get(name, torch.zeros_like(param)) for param in params]
            state[name] = torch.cat([part.reshape(-1) for part in parts])
            for param, view in zip(params, _cut(state[name], params), strict=True):
                self.state[param][name] = view
        for param in params:
            self.state[param]["step"] = int(self.state[param]["step"])  # torch keeps a tensor
        grad = torch.cat([torch.zeros_like(param).reshape(-1) for param in params])
        return FlatRun(params, grad, _cut(grad, params), state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of an equal optimizer (ours or torch.optim's of the same name)."""
        super().load_state_dict(state_dict)
        self._runs = {}  # the buffers belong to the state that was replaced

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled optimizer; its flat buffers are planned afresh."""
        super().__setstate__(state)
        self._runs = {}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in torch.optim."""
        super().add_param_group(param_group)
        self._runs = {}


def _cut(flat: Tensor, params: list[Tensor]) -> list[Tensor]:
    pieces = flat.split([param.numel() for param in params])
    return [piece.view(param.shape) for piece, param in zip(pieces, params, strict=True)]
