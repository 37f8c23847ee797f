"""Seeing what an answer calls: an answer that calls what it should build is told so by name.

While a property runs, three observers look at every call: Python's profiler (functions, whatever
name they were imported under, and copies of ours that a cell defines), a torch function mode
(`torch.softmax`, `x.softmax`) and, where asked, a dispatch mode (kernels, "aten._softmax"). A call
counts only when code of the learner's stands below it on the stack, so that a property may use
the real thing as its reference.

A forbidden name is dotted: "torch.nn.functional.layer_norm", "torch.Tensor.backward",
"torch.optim.SGD" (a class stands for all its methods), "aten.native_layer_norm",
"course_lib.forward.layers.layer_norm", "builtins.sorted".
"""

import contextlib
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

AUTOGRAD = (
    "torch.autograd.grad",
    "torch.autograd.backward",
    "torch.Tensor.backward",
    "torch.func.grad",
    "torch.func.vjp",
    "torch.func.jacrev",
    "torch.func.vmap",
)
OPTIMIZERS = ("torch.optim.Optimizer", "torch.optim.SGD", "torch.optim.Adam", "torch.optim.AdamW")
LAYER_NORM = ("torch.nn.functional.layer_norm", "torch.layer_norm", "aten.native_layer_norm")
SOFTMAX = (
    "torch.nn.functional.softmax",
    "torch.softmax",
    "torch.Tensor.softmax",
    "aten._softmax",
)
LOG_SOFTMAX = (
    "torch.nn.functional.log_softmax",
    "torch.log_softmax",
    "torch.Tensor.log_softmax",
    "torch.logsumexp",
    "torch.Tensor.logsumexp",
    "aten._log_softmax",
    "aten.logsumexp",
)
CROSS_ENTROPY = (
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.nll_loss",
    "aten.nll_loss_forward",
)
GELU = ("torch.nn.functional.gelu", "aten.gelu")
ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_attention_math",
)
CLIPPING = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grads_with_norm_",
    "torch.nn.utils.get_total_norm",
)
SCHEDULES = ("torch.optim.lr_scheduler.LRScheduler",)
_DIST = "torch.distributed"
BROADCAST = (f"{_DIST}.broadcast", f"{_DIST}.broadcast_object_list", f"{_DIST}.scatter")
ALL_GATHER = (
    f"{_DIST}.all_gather",
    f"{_DIST}.all_gather_into_tensor",
    f"{_DIST}.all_gather_object",
    f"{_DIST}.gather",
)
REDUCE_SCATTER = (f"{_DIST}.reduce_scatter", f"{_DIST}.reduce_scatter_tensor")
ALL_REDUCE = (f"{_DIST}.all_reduce", f"{_DIST}.reduce", f"{_DIST}.all_reduce_coalesced")
COLLECTIVES = (*BROADCAST, *ALL_GATHER, *REDUCE_SCATTER, *ALL_REDUCE, f"{_DIST}.all_to_all")
DDP = ("torch.nn.parallel.DistributedDataParallel",)


class ForbiddenCall(BaseException):
    """An answer called what it should build; no `except Exception` of the learner's stops it.

    Args:
        name: the dotted name that was called.
        line: (file name, line number) of the learner's line that called it, or None.
    """

    def __init__(self, name: str, line: tuple[str, int] | None) -> None:
        super().__init__(name, line)
        self.name, self.line = name, line


def resolve(name: str) -> Any:
    """Return the object behind a dotted name; for "aten.x" the operator packet.

    Raises:
        ValueError: when there is no such thing.
    """
    if name.startswith("aten."):
        name = f"torch.ops.{name}"
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        try:
            for part in parts[split:]:
                found = getattr(found, part)
        except AttributeError:
            break
        return found
    raise ValueError(f"there is nothing named {name!r} that an answer could call")


class Watch:
    """Looks for forbidden calls made by a learner's code.

    Args:
        names: the forbidden dotted names.
        modules: names of the modules whose code is the learner's.
    """

    def __init__(self, names: Iterable[str], modules: Iterable[str] = ("__main__",)) -> None:
        self.modules = frozenset(modules)
        self.caught: ForbiddenCall | None = None
        self._codes: dict[Any, str] = {}
        self._objects: list[tuple[Any, str]] = []
        self._operators: dict[Any, str] = {}
        for name in names:
            self._add(name, resolve(name))
        self._code_names = {key[0] for key in self._codes}
        self._object_names = {getattr(target, "__name__", "") for target, _ in self._objects}

    def _add(self, name: str, target: Any) -> None:
        if name.startswith("aten."):
            self._operators[target] = name
            return
        members = list(vars(target).values()) if inspect.isclass(target) else [target]
        for member in members:
            function = inspect.unwrap(getattr(member, "__func__", member))
            if isinstance(function, types.FunctionType):
                self._codes[_key(function.__code__)] = name
        if not inspect.isclass(target):
            self._objects.append((target, name))

    def refuse_itself(self, answer: Any) -> None:
        """Raise ForbiddenCall when the answer *is* the forbidden thing, or a partial of it."""
        while isinstance(answer, functools.partial):
            answer = answer.func
        for target, name in self._objects:
            if answer is target or _same(answer, target):
                raise ForbiddenCall(name, None)
        code = getattr(inspect.unwrap(answer), "__code__", None) if callable(answer) else None
        known = code is not None and self._codes.get(_key(code))
        if known and getattr(answer, "__module__", "") not in self.modules:
            raise ForbiddenCall(known, None)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Observe every call in the block.

        Raises:
            ForbiddenCall: at the first forbidden call made by a learner's code.
        """
        if not (self._codes or self._objects or self._operators):
            yield
            return
        with contextlib.ExitStack() as stack:
            if self._operators:
                stack.enter_context(_Kernels(self))
            if self._objects:
                stack.enter_context(_Functions(self))
            before = sys.getprofile()
            stack.callback(sys.setprofile, before)
            sys.setprofile(self._profile)
            yield
        if self.caught is not None:  # a bare `except:` of the learner's swallowed it
            raise self.caught

    def _profile(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_name in self._code_names:
                name = self._codes.get(_key(code))
                # A cell may define a function that equals ours; its own caller is what counts.
                if name is not None:
                    self._refuse(name, frame.f_back)
        elif event == "c_call" and getattr(argument, "__name__", "") in self._object_names:
            self._look_up(argument, frame)

    def _look_up(self, function: Any, frame: types.FrameType | None) -> None:
        for target, name in self._objects:
            if function is target or _same(function, target):
                self._refuse(name, frame)

    def _refuse(self, name: str, frame: types.FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "run_property":
            if frame.f_globals.get("__name__") in self.modules:
                self.caught = ForbiddenCall(name, (frame.f_code.co_filename, frame.f_lineno))
                raise self.caught
            frame = frame.f_back


class _Functions(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.watch._object_names:
            self.watch._look_up(func, sys._getframe(1))
        return func(*args, **(kwargs or {}))


class _Kernels(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first kernel imports torch._dynamo: over a second

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = self.watch._operators.get(func.overloadpacket)
        if name is not None:
            self.watch._refuse(name, sys._getframe(1))
        return func(*args, **(kwargs or {}))


def _key(code: types.CodeType) -> tuple[str, bytes, tuple[str, ...]]:
    """Return what makes two functions the same, wherever they are defined."""
    return code.co_name, code.co_code, code.co_names


def _same(one: Any, other: Any) -> bool:
    """Compare builtins and methods of C types, bound or not."""
    if isinstance(one, types.FunctionType) or isinstance(other, types.FunctionType):
        return one is other
    if getattr(one, "__name__", 1) != getattr(other, "__name__", 2):
        return False
    owner = getattr(other, "__objclass__", None)
    if owner is not None:  # a method of a C type: bound to an instance when called
        return isinstance(getattr(one, "__self__", None), owner)
    return bool(one == other)
