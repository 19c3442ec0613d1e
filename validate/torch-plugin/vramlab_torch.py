"""Puts libvramlab_torch.so behind torch.cuda, before the first tensor is on a device.

    import vramlab_torch
    vramlab_torch.use("libvramlab_torch.so", strategy="torch.caching:expandable_segments=true", trace="run.jsonl.gz")

Needs nothing beside torch (2.1 or newer; hooks for record_stream, empty_cache and graphs since 2.3). What the strategy cannot do is an error here,
not a null pointer later. Statistics of torch.cuda.memory are not to be had with a pluggable allocator: summary(path) of this library has some.
"""

import ctypes
import os

HOOKS = (
    ("set_init_fn", "vramlab_init"),
    ("set_reset_fn", "vramlab_empty_cache"),
    ("set_memory_fraction_fn", "vramlab_memory_fraction"),
    ("set_record_stream_fn", "vramlab_record_stream"),
    ("set_begin_allocate_to_pool", "vramlab_begin_pool"),
    ("set_end_allocate_to_pool_fn", "vramlab_end_pool"),
    ("set_release_pool", "vramlab_release_pool"),
)
_library = None


def use(library, strategy=None, trace=None, summary=None, limit=None, device=0):
    """Serves torch.cuda's requests from now on. Raises RuntimeError with the reason if that cannot be."""
    global _library
    import torch

    for name, value in (("STRATEGY", strategy), ("TRACE", trace), ("SUMMARY", summary), ("LIMIT", limit)):
        if value is not None:
            os.environ["VRAMLAB_" + name] = str(value)
    path = os.path.abspath(library)
    if not os.path.isfile(path):
        raise RuntimeError(f"found no file {path}; cargo build --release -p vramlab-torch-plugin makes it")
    loaded = ctypes.CDLL(path)
    why = ctypes.create_string_buffer(1024)
    loaded.vramlab_check.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    if loaded.vramlab_check(device, why, len(why)):
        raise RuntimeError(why.value.decode(errors="replace"))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "vramlab_alloc", "vramlab_free")
    inner = allocator.allocator()
    for hook, name in HOOKS:
        if hasattr(inner, hook):
            getattr(inner, hook)(ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    _library = loaded
    return loaded


def finish():
    """Ends the trace and writes the summary now; the end of the process does it too."""
    if _library is not None:
        _library.vramlab_finish()
