"""Known wrong and right answers to chapter 00's exercises."""

WRONG = {
    "00.1": [
        (
            "goes uphill",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return parameter + learning_rate * gradient",
            "uphill",
        ),
        (
            "forgets the rate",
            "def my_update(parameter, gradient, learning_rate):\n    return parameter - gradient",
            "learning rate is missing",
        ),
        (
            "divides by the rate",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return parameter - gradient / learning_rate",
            "divided by the learning rate",
        ),
        (
            "returns the step alone",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return learning_rate * gradient",
            "step alone: subtract",
        ),
        (
            "changes the caller's parameter",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    parameter -= learning_rate * gradient\n"
            "    return parameter",
            "caller's tensor `parameter`",
        ),
        (
            "changes the caller's gradient",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return parameter - gradient.mul_(learning_rate)",
            "caller's tensor `gradient`",
        ),
        (
            "one step for all elements",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return parameter - learning_rate * gradient.mean()",
            "Element i of the gradient",
        ),
        (
            "always downwards",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return parameter - learning_rate * gradient.abs()",
            "keep the gradient's sign",
        ),
        (
            "returns nothing",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    new = parameter - learning_rate * gradient",
            "Nothing came back",
        ),
        (
            "returns a plain number",
            "def my_update(parameter, gradient, learning_rate):\n    return 0.799",
            "a tensor of shape (3,)",
        ),
        (
            "torch's optimizer",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    weight = parameter.clone().requires_grad_()\n"
            "    weight.grad = gradient\n"
            "    torch.optim.SGD([weight], lr=learning_rate).step()\n"
            "    return weight.detach()",
            "a call of torch.optim.SGD",
        ),
        (
            "the course's optimizer under another name",
            "from course_lib.update.optimizers import SGD as step_down\n"
            "def my_update(parameter, gradient, learning_rate):\n"
            "    weight = torch.nn.Parameter(parameter.clone())\n"
            "    weight.grad = gradient\n"
            "    step_down([weight], lr=learning_rate).step()\n"
            "    return weight.detach()",
            "a call of course_lib.update.optimizers.SGD",
        ),
    ],
    "00.2": [
        (
            "mean of means",
            "def my_average(gradients, counts):\n    return sum(gradients) / len(gradients)",
            "mean of the means",
        ),
        (
            "does not divide",
            "def my_average(gradients, counts):\n"
            "    return sum(g * n for g, n in zip(gradients, counts))",
            "added but not divided",
        ),
        (
            "divides by the ranks",
            "def my_average(gradients, counts):\n"
            "    return sum(g * n for g, n in zip(gradients, counts)) / len(counts)",
            "divided by the number of ranks",
        ),
        (
            "adds the gradients as they are",
            "def my_average(gradients, counts):\n    return sum(gradients)",
            "added as they are",
        ),
        (
            "divides the plain sum by the rows",
            "def my_average(gradients, counts):\n    return sum(gradients) / sum(counts)",
            "by its own count before you add",
        ),
        (
            "divides by each count",
            "def my_average(gradients, counts):\n"
            "    return sum(g / n for g, n in zip(gradients, counts))",
            "multiply by the count, don't divide",
        ),
        (
            "leaves out empty ranks, and all that follow",
            "def my_average(gradients, counts):\n"
            "    total, rows = 0, 0\n"
            "    for g, n in zip(gradients, counts):\n"
            "        if n == 0:\n"
            "            break\n"
            "        total, rows = total + g * n, rows + n\n"
            "    return total / rows",
            "expected   tensor([2])",
        ),
        (
            "gives an empty rank the weight of one row",
            "def my_average(gradients, counts):\n"
            "    weights = [max(n, 1) for n in counts]\n"
            "    return sum(g * n for g, n in zip(gradients, weights)) / sum(weights)",
            "tensor([1.71429])",
        ),
        (
            "scales the caller's gradients",
            "def my_average(gradients, counts):\n"
            "    for g, n in zip(gradients, counts):\n"
            "        g *= n\n"
            "    return sum(gradients) / sum(counts)",
            "caller's tensor `gradients[0]`",
        ),
        (
            "numpy's weighted average",
            "import numpy\n"
            "def my_average(gradients, counts):\n"
            "    stacked = torch.stack(gradients).numpy()\n"
            "    return torch.from_numpy(numpy.average(stacked, axis=0, weights=counts)).float()",
            "a call of numpy.average",
        ),
        (
            "returns a number",
            "def my_average(gradients, counts):\n"
            "    return float(sum(g * n for g, n in zip(gradients, counts))[0] / sum(counts))",
            "expected   a tensor of shape",
        ),
    ],
    "00.3": [
        (
            "updates before the sync",
            'my_order = ["data", "forward", "loss", "backward", "update", "sync"]',
            "the models drift apart",
        ),
        (
            "measures the loss before there is an answer",
            'my_order = ["data", "loss", "forward", "backward", "sync", "update"]',
            "compares an answer",
        ),
        (
            "traces back before the loss",
            'my_order = ["data", "forward", "backward", "loss", "sync", "update"]',
            "starts at the loss",
        ),
        (
            "agrees before there are gradients",
            'my_order = ["data", "forward", "loss", "sync", "backward", "update"]',
            "agree on gradients",
        ),
        (
            "reads the data after the forward pass",
            'my_order = ["forward", "data", "loss", "backward", "sync", "update"]',
            "hasn't read",
        ),
        (
            "leaves the sync out",
            'my_order = ["data", "forward", "loss", "backward", "update"]',
            "sync is missing",
        ),
        (
            "misspells a stage",
            'my_order = ["data", "forwards", "loss", "backward", "sync", "update"]',
            "Write the names as they stand",
        ),
        (
            "names a stage twice",
            'my_order = ["data", "forward", "loss", "backward", "sync", "update", "data"]',
            "more than once",
        ),
        (
            "fills half of the places",
            'my_order = ["data", "forward", "loss", ..., ..., "update"]',
            "still blank",
        ),
        ("one string", 'my_order = "data, forward, loss, backward, sync, update"', "a list of"),
    ],
}

RIGHT = {
    "00.1": [
        (
            "in one line",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    return parameter - learning_rate * gradient",
        ),
        (
            "on a copy, in place",
            "def my_update(parameter, gradient, learning_rate):\n"
            "    new = parameter.clone()\n"
            "    new.add_(gradient, alpha=-learning_rate)\n"
            "    return new",
        ),
        (
            "with torch.sub, as a lambda",
            "my_update = lambda p, g, rate: torch.sub(p, g, alpha=rate)",
        ),
    ],
    "00.2": [
        (
            "shares that add up to 1",
            "def my_average(gradients, counts):\n"
            "    rows = sum(counts)\n"
            "    return sum(g * (n / rows) for g, n in zip(gradients, counts))",
        ),
        (
            "stacked, with a weighted sum",
            "def my_average(gradients, counts):\n"
            "    weights = torch.tensor(counts, dtype=gradients[0].dtype)\n"
            "    weights /= weights.sum()\n"
            '    return torch.einsum("r,r...->...", weights, torch.stack(gradients))',
        ),
    ],
    "00.3": [
        ("a tuple", 'my_order = ("data", "forward", "loss", "backward", "sync", "update")'),
        ("from one string", 'my_order = "data forward loss backward sync update".split()'),
    ],
}

SURVIVORS = {
    "00.2": {"line 3: 0 became -1": "all gradients have one shape: the zeros are the same"},
}
