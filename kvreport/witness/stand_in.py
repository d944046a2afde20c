"""What stands in for a GPU and for compiled packages while an engine plans.

Runs under the engine's interpreter: nothing but the standard library and, inside functions, torch.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

KERNELS: Final = frozenset(
    "aiter amdsmi av blobfile cuda cutlass deep_ep deep_gemm deepseek_recipe flash_mla flashinfer humming llguidance numba"
    " nvshmem nvtx openai_harmony outlines outlines_core py_spy pynvml quack sgl_flash_mla sgl_kernel"
    " smg_grpc_servicer tilelang tml_renderers torch_memory_saver torchaudio triton tvm_ffi vllm watchfiles xgrammar"
    " flash_attn kernels torchvision".split()
)
"""Packages with compiled code, or for a server's other tasks, that an engine imports and no planner calls."""
COMPILED: Final = re.compile(r"vllm\.(triton_utils(\.|$)|.*(_C($|_)|cumem_allocator))")
"""Parts of vLLM that are compiled, or that compile kernels when they are imported."""
ENGINES: Final = ("/vllm/", "/sglang/srt/")
"""Folders of packages whose functions are named."""
_OPERATORS: Final = (
    "add radd sub rsub mul rmul mod truediv floordiv lshift rshift and or ror neg pow rpow".split()
)


class Nothing:
    """Stands for any name of a package that is not there."""

    __version__ = "99.0.0"

    def __init__(self, *_: object, **__: object) -> None:
        """Take anything."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *given: object, **named: object) -> object:
        """Return what a decorator was given, else nothing again."""
        decorated = len(given) == 1 and callable(given[0]) and not named and not isinstance(given[0], Nothing)
        return given[0] if decorated else Nothing()

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __getitem__(self, key: object) -> Nothing:
        return Nothing()

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __instancecheck__(self, instance: object) -> bool:
        """Be the class of nothing that is there."""
        return False

    def __index__(self) -> int:
        """Be a size of one: no cache depends on the workspaces of a package that is not there."""
        return 1

    def __get_pydantic_core_schema__(self, *_: object) -> dict[str, str]:
        return {"type": "any"}


for _name in _OPERATORS:
    setattr(Nothing, f"__{_name}__", lambda *_: Nothing())
for _name in ("lt", "le", "gt", "ge"):
    setattr(Nothing, f"__{_name}__", lambda *_: False)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules for some names."""

    def __init__(self, stands_in: Callable[[str], bool]) -> None:
        """Stand in for the modules whose name is taken."""
        self.stands_in = stands_in

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a package, if it is one of those."""
        del path, target
        return (
            importlib.machinery.ModuleSpec(fullname, self, is_package=True)
            if self.stands_in(fullname)
            else None
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return an empty module whose every name is :class:`Nothing`."""

        def named(name: str) -> Nothing:
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            return Nothing()

        made: Any = types.ModuleType(spec.name)
        made.__path__, made.__file__, made.__version__ = [], spec.name, "99.0.0"
        made.HAS_TRITON = True
        made.__getattr__ = named
        return made  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def stand_in(engine: str) -> None:
    """Put empty modules in place of compiled packages that are not there, and of vLLM's own compiled parts."""
    for early in ("torch.utils.flop_counter", "torch._functorch.aot_autograd"):
        importlib.import_module(early)  # these ask for triton, and take what stands in for it
    missing = {
        name
        for name in KERNELS - {engine}
        # Transformers and torch look these up by name and would then call them.
        if name not in ("flash_attn", "kernels", "triton") or engine == "sglang"
        if importlib.util.find_spec(name) is None
    }
    sys.meta_path.append(Absent(lambda name: name.partition(".")[0] in missing))
    if engine == "vllm":
        sys.meta_path.insert(0, Absent(lambda name: COMPILED.match(name) is not None))
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return real(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if not any(one in re.sub("[-.]+", "_", distribution_name.lower()) for one in missing):
                raise
            return "99.0.0"

    importlib.metadata.version = version


def pretend(device: dict[str, Any]) -> None:
    """Make torch believe in a device.

    ``device``: ``name``, ``memory_bytes`` and ``capability``, two whole numbers.
    """
    import torch

    with contextlib.suppress(ImportError):
        runtime: Any = importlib.import_module("triton.runtime")
        if runtime.__file__ == "triton.runtime":  # one of our empty modules
            target = types.SimpleNamespace(backend="hip" if device.get("gcn_arch") else "cuda")
            active = types.SimpleNamespace(get_current_target=lambda: target, utils=Nothing())
            runtime.driver = types.SimpleNamespace(active=active)
    cuda: Any = torch.cuda
    capability, memory = tuple(device["capability"]), device["memory_bytes"]
    properties = types.SimpleNamespace(
        total_memory=memory,
        multi_processor_count=device.get("multiprocessors", 132),
        name=device["name"],
        major=capability[0],
        minor=capability[1],
        gcnArchName=device.get("gcn_arch", ""),
        warp_size=64 if device.get("gcn_arch") else 32,
    )
    if device.get("gcn_arch"):
        torch.version.hip = "7.2"
    else:
        torch.version.cuda = "13.0"
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 8
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_, **__: capability
    cuda.get_device_name = lambda *_, **__: device["name"]
    cuda.get_device_properties = lambda *_, **__: properties
    cuda.mem_get_info = lambda *_, **__: (memory, memory)
    cuda.current_stream = cuda.default_stream = lambda *_, **__: Nothing()
    cuda.Stream = cuda.Event = Nothing
    compiler: Any = torch
    # Nothing is run, and to wrap the functions of each layer takes a third of the time.
    compiler.compile = lambda function=None, **_: function or (lambda decorated: decorated)
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        accelerator.is_available, accelerator.device_count = lambda: True, lambda: 8
        accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        accelerator.current_device_index = accelerator.current_device_idx = lambda: 0
        accelerator.current_stream = cuda.current_stream
        accelerator.empty_cache = accelerator.synchronize = lambda *_, **__: None


def on_meta() -> Any:
    """Return a context in which tensors asked for on the device have no storage."""
    import torch
    from torch.overrides import TorchFunctionMode

    def moved(value: object) -> object:
        if isinstance(value, torch.device):
            return torch.device("meta") if value.type == "cuda" else value
        return "meta" if isinstance(value, str) and re.fullmatch(r"cuda(:[0-9]+)?", value) else value

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
                return args[0]
            named = {name: moved(value) for name, value in (kwargs or {}).items()}
            named.pop("pin_memory", None)
            if isinstance(named.get("device"), int):
                named["device"] = "meta"
            found = func(*map(moved, args), **named)
            if type(found) is torch.Tensor and found.is_meta and found._base is None:
                made[id(found)] = weakref.ref(found), _where(sys._getframe(1))
            return found

    made: dict[int, tuple[Any, str]] = {}
    mode: Any = OnMeta()
    mode.made = made
    return mode


def _where(frame: Any) -> str:
    """Return the function of an engine that a call comes from."""
    while frame is not None:
        file = frame.f_code.co_filename
        inside = next((file.partition(one)[2] for one in ENGINES if one in file), "")
        if inside:
            return f"{inside}::{frame.f_code.co_qualname}"
        frame = frame.f_back
    return ""


def pretend_operators() -> None:
    """Let operators of compiled extensions be named, registered and asked whether they support a device."""
    import torch
    import torch._ops
    import torch.library

    space: Any = torch._ops._OpNamespace
    own, register = space.__getattr__, torch.library.register_fake

    def named(self: Any, name: str) -> Any:
        try:
            return own(self, name)
        except AttributeError:
            if name.startswith("__") or not self.name.startswith("_"):
                raise
            return (lambda *_, **__: True) if "support" in name else Nothing()

    def registered(operator: Any, func: Any = None, /, **named: Any) -> Any:
        def decorated(function: Any) -> Any:
            with contextlib.suppress(RuntimeError):  # the operator is in an extension that is not loaded
                register(operator, **named)(function)
            return function

        return decorated if func is None else decorated(func)

    space.__getattr__ = named
    torch.library.register_fake = registered
