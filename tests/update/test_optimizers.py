"""Our optimizers against torch.optim's, over 100 steps, and what an optimizer must not do."""

import copy
import pickle

import pytest
import torch
from torch import nn

from course_lib.update.optimizers import SGD, Adam, AdamW

PAIRS = [
    (SGD, torch.optim.SGD, {"lr": 0.05}),
    (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}),
    (Adam, torch.optim.Adam, {"lr": 0.01}),
    (Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.0}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.3}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01, "eps": 1e-3}),
]
IDS = [f"{ours.__name__}-{index}" for index, (ours, _, _) in enumerate(PAIRS)]


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 2)).to(dtype)


def train(model: nn.Module, optimizer, steps: int, first: int = 0) -> None:
    dtype = next(model.parameters()).dtype
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(6, 5, generator=generator, dtype=dtype)
        loss = ((model(x) - x[:, :2].sin()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def largest_difference(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max((p - q).abs().max().item() for p, q in pairs)


@pytest.mark.parametrize(("ours", "torchs", "settings"), PAIRS, ids=IDS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_equal_to_torch_after_100_steps(ours, torchs, settings, dtype, bound):
    mine, theirs = make_model(dtype), make_model(dtype)
    train(mine, ours(mine.parameters(), **settings), 100)
    train(theirs, torchs(theirs.parameters(), **settings), 100)
    assert largest_difference(mine, make_model(dtype)) > 1e-2, "nothing was learnt"
    assert largest_difference(mine, theirs) <= bound


def test_weight_decay_of_adam_and_adamw_are_not_the_same():
    models = [make_model(), make_model()]
    for model, kind in zip(models, (Adam, AdamW), strict=True):
        train(model, kind(model.parameters(), lr=0.01, weight_decay=0.3), 5)
    assert largest_difference(*models) > 1e-3


@pytest.mark.parametrize(("ours", "torchs", "settings"), PAIRS, ids=IDS)
def test_parameters_without_gradient_rest_as_in_torch(ours, torchs, settings):
    """One parameter is frozen, one has a gradient in every third step only: it keeps its own t."""
    results = []
    for kind in (ours, torchs):
        model = make_model()
        model[0].bias.requires_grad_(False)
        optimizer = kind(model.parameters(), **settings)
        for step in range(9):
            torch.manual_seed(step)
            for param in model.parameters():
                param.grad = torch.randn_like(param) if param.requires_grad else None
            if step % 3:
                model[3].weight.grad = None
            optimizer.step()
        results.append(model)
    assert torch.equal(results[0][0].bias, make_model()[0].bias)
    assert largest_difference(*results) <= 1e-6


def test_groups_have_their_own_settings():
    results = []
    for kind in (AdamW, torch.optim.AdamW):
        model = make_model()
        groups = [
            {"params": model[0].parameters(), "weight_decay": 0.0},
            {"params": model[3].parameters(), "lr": 0.002},
        ]
        optimizer = kind(groups, lr=0.01, weight_decay=0.5)
        train(model, optimizer, 10)
        optimizer.param_groups[0]["lr"] = 0.1  # what a schedule does
        optimizer.add_param_group({"params": model[2].parameters()})
        train(model, optimizer, 10, first=10)
        results.append(model)
    assert largest_difference(*results) <= 1e-6


def test_momentum_of_a_group_counts_though_the_default_is_none():
    results = []
    for kind in (SGD, torch.optim.SGD):
        model = make_model()
        train(model, kind([{"params": model.parameters(), "momentum": 0.9}], lr=0.05), 10)
        results.append(model)
    assert largest_difference(*results) <= 1e-6


@pytest.mark.parametrize("way", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize(("ours", "_torchs", "settings"), PAIRS, ids=IDS)
def test_state_goes_on_where_it_stopped(ours, _torchs, settings, way):
    whole, model = make_model(), make_model()
    train(whole, ours(whole.parameters(), **settings), 10)
    optimizer = ours(model.parameters(), **settings)
    train(model, optimizer, 4)
    if way == "state_dict":
        fresh = ours(model.parameters(), **settings)
        fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer = fresh
    elif way == "pickle":
        model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
    else:
        model, optimizer = copy.deepcopy((model, optimizer))
    train(model, optimizer, 6, first=4)
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), whole.parameters(), strict=True)
    )


@pytest.mark.parametrize("index", [1, 3, 6])
def test_goes_on_from_torchs_state(index):
    ours, torchs, settings = PAIRS[index]
    whole, model = make_model(), make_model()
    train(whole, torchs(whole.parameters(), **settings), 20)
    theirs = torchs(model.parameters(), **settings)
    train(model, theirs, 8)
    mine = ours(model.parameters(), **settings)
    state = theirs.state_dict()
    state["param_groups"] = mine.state_dict()["param_groups"]
    mine.load_state_dict(state)
    train(model, mine, 12, first=8)
    assert largest_difference(model, whole) <= 1e-6


def test_parameters_and_gradients_keep_their_memory():
    model = make_model()
    optimizer = AdamW(model.parameters(), lr=0.01)
    addresses = [param.data_ptr() for param in model.parameters()]
    train(model, optimizer, 2)
    grads = [param.grad.clone() for param in model.parameters()]
    optimizer.step()
    assert addresses == [param.data_ptr() for param in model.parameters()]
    for param, grad in zip(model.parameters(), grads, strict=True):
        assert torch.equal(param.grad, grad), "the step changed a gradient"
        assert param.untyped_storage().nbytes() == param.numel() * param.element_size()


def test_closure_is_called_with_gradients_on():
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 5)) ** 2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) > optimizer.step(closure)


def test_not_contiguous_and_scalar_parameters():
    results = []
    for kind in (AdamW, torch.optim.AdamW):
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(4, 3).t()), nn.Parameter(torch.tensor(2.0))]
        optimizer = kind(params, lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (params[0].sin().sum() * params[1]).backward()
            optimizer.step()
        results.append(params)
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "named"),
    [
        (SGD, {"lr": -1.0}, "lr is -1.0"),
        (SGD, {"lr": 0.1, "momentum": 1.0}, "momentum is 1.0"),
        (AdamW, {"betas": (0.9, 1.5)}, "beta2 is 1.5"),
        (AdamW, {"eps": float("nan")}, "eps is nan"),
        (Adam, {"weight_decay": -0.1}, "weight_decay is -0.1"),
    ],
)
def test_wrong_numbers_are_named(kind, settings, named):
    with pytest.raises(ValueError, match=named):
        kind(make_model().parameters(), **settings)


def test_sparse_gradient_is_refused():
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ValueError, match="sparse=False"):
        AdamW(table.parameters()).step()
