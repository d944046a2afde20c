"""One model in the installed llama.cpp: plan its buffers for some settings and print what the log says, as JSON.

A process of its own for each file, because a fault in a header ends the process. Needs ``llama-cpp-python``
(``LLAMA_CPP_LIB_PATH`` names another build of the library). Nothing is allocated: ``no_alloc`` is what ``--fit`` uses.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

from kvreport.startup_log.llama_cpp import read_start


def run(path: str, settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Plan every setting.

    Args:
        path: A GGUF file.
        settings: Options by name: ``ctx``, ``np``, ``unified``, ``ub``, ``k``, ``v``, ``fa``.
    """
    import llama_cpp.llama_cpp as llama

    lines: list[str] = []

    @llama.llama_log_callback
    def listen(_level: int, text: bytes, _data: ctypes.c_void_p) -> None:
        lines.append(text.decode("utf-8", "replace"))

    llama.llama_log_set(listen, ctypes.c_void_p(0))
    llama.llama_backend_init()
    params = llama.llama_model_default_params()
    params.no_alloc, params.n_gpu_layers, params.load_mode = True, 0, 0
    model = llama.llama_model_load_from_file(path.encode(), params)
    if not model:
        return [{"error": _errors(lines)}]
    found = []
    for setting in settings:
        lines.clear()
        context = llama.llama_init_from_model(model, _context_params(llama, setting))
        if not context:
            found.append({"error": _errors(lines)})
            continue
        start = read_start("".join(lines).splitlines())
        found.append(
            {
                "kv": start.kv_bytes,
                "state": start.state_bytes,
                "output": sum(kinds.get("output", 0) for kinds in start.buffers.values()),
                "compute": sum(kinds.get("compute", 0) for kinds in start.buffers.values()),
            }
        )
        llama.llama_free(context)
    return found


def _context_params(llama: Any, setting: dict[str, Any]) -> Any:  # noqa: ANN401 - a module and its structure
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = setting["ctx"], 2048, setting.get("ub", 512)
    params.n_seq_max = params.n_outputs_max = setting.get("np", 1)
    params.kv_unified, params.swa_full = setting.get("unified", False), False
    params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[setting.get("fa", "auto")]
    kinds = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}
    params.type_k, params.type_v = kinds[setting.get("k", "f16")], kinds[setting.get("v", "f16")]
    return params


def _errors(lines: list[str]) -> str:
    wanted = [
        line.strip() for line in lines if any(word in line for word in ("error", "fail", "missing", "wrong"))
    ]
    return wanted[0][:300] if wanted else "".join(lines)[-300:]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], json.loads(sys.argv[2]))))
