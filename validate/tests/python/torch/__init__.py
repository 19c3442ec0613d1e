"""Stands in for torch in tests of the recorder: an allocator that serves from one segment, and the functions that the recorder calls."""

__version__ = "2.11.0+stub"
_SEGMENT = 0x700000000000
_state = {"recording": False, "trace": [], "live": {}, "next": _SEGMENT, "observer": None, "enabled": None}


class OutOfMemoryError(RuntimeError):
    pass


def _note(action, address, size):
    if _state["recording"]:
        _state["trace"].append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(_state["trace"])})


def ask(size):
    """A request, as a tensor makes it."""
    if size > 1 << 20:
        _state["trace"].append({"action": "oom", "size": size, "stream": 0, "device_free": 4096, "time_us": 0})
        if _state["observer"]:
            _state["observer"](0, size, 1 << 21, 4096)
        raise OutOfMemoryError("CUDA out of memory")
    if not _state["live"] and _state["next"] == _SEGMENT:
        _note("segment_alloc", _SEGMENT, 2 << 20)
    address = _state["next"]
    _state["next"] += (size + 511) // 512 * 512
    _state["live"][address] = size
    _note("alloc", address, size)
    return address


class _Memory:
    def _record_memory_history(self, enabled="all", context="all", stacks="all", max_entries=1 << 62):
        _state["recording"] = enabled is not None
        if enabled:
            _state["enabled"] = (enabled, context, stacks, max_entries)

    def _snapshot(self):
        blocks, at = [], _SEGMENT
        for address, size in sorted(_state["live"].items()):
            rounded = (size + 511) // 512 * 512
            blocks.append({"address": address, "size": rounded, "requested_size": size, "state": "active_allocated", "frames": []})
            at = address + rounded
        blocks.append({"address": at, "size": _SEGMENT + (2 << 20) - at, "requested_size": 0, "state": "inactive", "frames": []})
        segment = {"device": 0, "address": _SEGMENT, "total_size": 2 << 20, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
        segment.update(allocated_size=sum(b["size"] for b in blocks[:-1]), active_size=sum(b["size"] for b in blocks[:-1]), requested_size=sum(_state["live"].values()))
        return {"segments": [segment], "device_traces": [list(_state["trace"])], "allocator_settings": {}, "external_annotations": []}


class _Cuda:
    memory = _Memory()

    @staticmethod
    def is_available():
        return True


class _Inner:
    @staticmethod
    def _cuda_attach_out_of_memory_observer(observer):
        _state["observer"] = observer


cuda = _Cuda()
_C = _Inner()
