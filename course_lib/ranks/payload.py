"""What travels between the kernel and its ranks: functions by value, tensors as plain data.

cloudpickle sends functions that were defined in a cell. Three things are added here: code keeps the
name of its file (cloudpickle renames every file, and no traceback would have a cell line), tensors
travel as their numbers together with `.grad`, and what can't travel is named.
"""

from __future__ import annotations

import importlib
import io
import linecache
import marshal
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

from course_lib.errors import UserError

_MAX_SOURCES = 500
_remembered: dict[str, None] = {}  # names of sources, oldest first


class _Pickler(cloudpickle.Pickler):
    """cloudpickle with the file names of code kept and tensors as plain data."""

    def __init__(self, file: io.BytesIO, apart: list[pickle.PickleBuffer] | None = None) -> None:
        super().__init__(file, protocol=5, buffer_callback=None if apart is None else apart.append)
        self.file_names: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Choose how one object is pickled; NotImplemented leaves it to cloudpickle."""
        if isinstance(obj, types.CodeType):
            self.file_names.add(obj.co_filename)
            return _restore_code, (marshal.dumps(obj),)
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj:
            return importlib.import_module, (obj.__name__,)  # torch.ops is of a type of its own
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) in (torch.Tensor, torch.nn.Parameter):
            reduced = _reduce_tensor(obj, torch)
            if reduced is not None:
                return reduced
        return super().reducer_override(obj)


def _restore_code(marshalled: bytes) -> types.CodeType:
    code: types.CodeType = marshal.loads(marshalled)
    return code


def _reduce_tensor(tensor: Any, torch: Any) -> Any:
    """Return how to rebuild a dense tensor on the CPU, or None for any other kind."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return None
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy()
    is_parameter = type(tensor) is torch.nn.Parameter
    grad = tensor.grad if tensor.is_leaf else None
    return _restore_tensor, (
        pickle.PickleBuffer(data),
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tensor.requires_grad,
        is_parameter,
        grad,
    )


def _restore_tensor(
    data: Any,
    dtype: str,
    shape: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
    grad: Any,
) -> Any:
    import torch

    if len(data) == 0:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    else:
        # In-band, a writable buffer comes back as a bytearray of our own: no second copy.
        tensor = torch.frombuffer(data, dtype=getattr(torch, dtype)).reshape(shape)
    if is_parameter:
        tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
    elif requires_grad:
        tensor.requires_grad_()
    tensor.grad = grad
    return tensor


def dumps(value: Any) -> bytes:
    """Pickle `value` by value; see the module's text for what is special."""
    return _dumps_with_names(value)[0]


def loads(data: bytes) -> Any:
    """Unpickle what `dumps` wrote."""
    return pickle.loads(data)


def dumps_apart(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle like `dumps`, with the bytes of tensors and arrays apart: they are not copied."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(file, buffers).dump(value)
    return file.getvalue(), buffers


def loads_apart(packed: tuple[bytes, list[Any]]) -> Any:
    """Unpickle what `dumps_apart` wrote; tensors take over the buffers that came."""
    return pickle.loads(packed[0], buffers=packed[1])


def _dumps_with_names(value: Any) -> tuple[bytes, set[str]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.file_names


def pack_call(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bytes, dict[str, str]]:
    """Pickle a call for the ranks.

    Returns:
        The pickle of (fn, args), and the source text of each cell that its code comes from, so that
        a rank can show the line.

    Raises:
        UserError: something in it can't be sent; it is named.
    """
    try:
        data, file_names = _dumps_with_names((fn, args))
    except Exception as error:  # pickling runs foreign code, which may raise anything
        raise UserError(_name_the_culprit(fn, args, error)) from None
    sources = {name: source for name in file_names if (source := _cell_source(name))}
    return data, sources


def _cell_source(file_name: str) -> str:
    """Return the source that only this process knows (a notebook cell), or ''."""
    entry = linecache.cache.get(file_name)
    if entry is None or len(entry) == 1 or not file_name.endswith((".py", ">")):
        return ""
    in_kernel_only = entry[1] is None or "ipykernel" in file_name
    return "".join(entry[2]) if in_kernel_only else ""


def remember_sources(sources: dict[str, str]) -> None:
    """Make cells' lines known here: to tracebacks and to `inspect.getsource`.

    The last 500 are kept, so that a long session doesn't fill the memory of every rank.
    """
    for name, source in sources.items():
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        _remembered.pop(name, None)
        _remembered[name] = None
    while len(_remembered) > _MAX_SOURCES:
        oldest = next(iter(_remembered))
        del _remembered[oldest]
        linecache.cache.pop(oldest, None)


def _name_the_culprit(fn: Callable[..., Any], args: tuple[Any, ...], error: Exception) -> str:
    """Say which argument, global or captured variable can't be pickled, and what to do."""
    for label, value in _parts(fn, args):
        why = _why_not(value)
        if why is not None:
            kind = type(value).__name__
            return (
                f"{label} ({kind}) can't be sent to a rank: {why}; make it inside the function, "
                "or send plain data (numbers, strings, tensors, state_dicts)."
            )
    return f"the call can't be sent to a rank: {type(error).__name__}: {error}."


def _parts(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """List what a call carries along, with a name for each."""
    parts = [(f"argument {index + 1}", value) for index, value in enumerate(args)]
    function = getattr(fn, "__func__", fn)
    if not isinstance(function, types.FunctionType):
        return [*parts, ("the function", fn)]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        parts.append((f"the captured variable {name!r}", cell.cell_contents))
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            parts.append((f"the global variable {name!r}", function.__globals__[name]))
    for value in function.__defaults__ or ():
        parts.append(("a default argument", value))
    return parts


def _global_names(code: types.CodeType) -> list[str]:
    """List the names that a code object and those inside it may read from the globals."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _global_names(constant)
    return names


def _why_not(value: Any) -> str | None:
    """Return why `value` can't be pickled, or None if it can."""
    try:
        dumps(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return None
