"""Records what a PyTorch program asks of its CUDA allocator, from the first request on, as a snapshot that vramlab reads.

    python vramlab_record.py -o run.pickle.gz train.py --epochs 1
    python vramlab_record.py -o run.pickle.gz --then "replay --verify" -m package.train
    python vramlab_record.py -o run.pickle.gz --then "advise --capacity 16GiB" train.py

    from vramlab_record import record, phase
    with record("run.pickle.gz"):
        with phase("step 0"):
            step()

Needs nothing beside torch (2.1 or newer, with CUDA). One file; copy it where it is needed.

What is written: everything that torch.cuda.memory._snapshot() gives, pickled as torch does it, packed if the name ends with .gz; whole or not at
all. If the program runs out of memory, the snapshot of that moment is written beside it, as run.oom.pickle.gz: its last entry is the failing request.
A file is also written if the program fails or is interrupted. Recording costs some 200 bytes of host memory for each request and each free.

Exit codes of the command: the program's own; 2 usage; 6 no torch, or no CUDA device in it; 7 the snapshot cannot be written.
"""

import argparse
import contextlib
import gzip
import os
import pickle
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile

NO_DEVICE, CANNOT_WRITE = 6, 7
STACKS = ("none", "python", "all")


class Trouble(Exception):
    """What went wrong, and the exit code for it."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def say(message):
    print("vramlab_record: " + message, file=sys.stderr)


def _torch():
    try:
        import torch
    except ImportError as error:
        raise Trouble(f"torch cannot be imported ({error}); run this with the Python that runs the program", NO_DEVICE)
    if not torch.cuda.is_available():
        raise Trouble(f"PyTorch {torch.__version__} finds no CUDA device: there is nothing to record", NO_DEVICE)
    missing = [name for name in ("_record_memory_history", "_snapshot") if not hasattr(torch.cuda.memory, name)]
    if missing:
        raise Trouble(f"PyTorch {torch.__version__} has no torch.cuda.memory.{missing[0]}; it takes 2.1 or newer", NO_DEVICE)
    return torch


def _write(snapshot, path):
    """Writes the file whole or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            try:
                if path.endswith(".gz"):
                    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
                        pickle.dump(snapshot, packed)
                else:
                    pickle.dump(snapshot, file)
                os.chmod(file.name, 0o644)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise Trouble(f"cannot write {path}: {error}; choose another place with -o", CANNOT_WRITE)


def oom_path(path):
    """Where the snapshot of an out-of-memory goes: run.oom.pickle.gz for run.pickle.gz."""
    folder, name = os.path.split(path)
    stem, dot, endings = name.partition(".")
    return os.path.join(folder, f"{stem}.oom{dot}{endings}")


@contextlib.contextmanager
def record(path, stacks="none", max_entries=None):
    """Records from here to the end of the block, and writes the snapshot to path, however the block ends.

    stacks: "none", "python", or "all" (with C++). max_entries: of the history; older ones are dropped, which makes it incomplete.
    Begin before the first tensor is on the device: what was asked before is in the snapshot as it stands, without its history.
    """
    torch = _torch()
    memory = torch.cuda.memory
    seen = []

    def out_of_memory(device, asked, total, free):
        if not seen:
            seen.append(asked)
            _write(memory._snapshot(), oom_path(path))
            say(f"out of memory: {asked} bytes asked on device {device}, {free} of {total} free; its snapshot is {oom_path(path)}")

    # "state" alone keeps no history; "all" is the history with frees
    options = {"enabled": "all", "context": None if stacks == "none" else "all", "stacks": "all" if stacks == "all" else "python"}
    if max_entries is not None:
        options["max_entries"] = max_entries
    memory._record_memory_history(**options)
    if hasattr(torch._C, "_cuda_attach_out_of_memory_observer"):
        torch._C._cuda_attach_out_of_memory_observer(out_of_memory)
    try:
        yield
    finally:
        snapshot = memory._snapshot()
        memory._record_memory_history(enabled=None)
        _write(snapshot, path)


@contextlib.contextmanager
def phase(name):
    """Names what is asked inside, in this thread: vramlab shows it as the site of a buffer. Does nothing where torch has no such thing."""
    memory = _torch().cuda.memory
    tell = getattr(memory, "_set_memory_metadata", None)
    if tell is None:
        yield
        return
    ask = getattr(memory, "_get_memory_metadata", lambda: "")
    before = ask()
    tell(name)
    try:
        yield
    finally:
        tell(before)


def hand_over(path, command):
    """Runs `vramlab COMMAND path`, with options of the command behind its name; VRAMLAB names the program."""
    program = os.environ.get("VRAMLAB", "vramlab")
    found = shutil.which(program)
    if found is None:
        say(f"found no program {program}; cargo install --path results puts it on the path, or VRAMLAB names it. Then: {program} {command} {path}")
        return
    name, *options = shlex.split(command)
    done = subprocess.run([found, name, path, *options])
    if done.returncode:
        say(f"{program} {command} ended with code {done.returncode}")


def _arguments(args):
    parser = argparse.ArgumentParser(
        prog="vramlab_record.py", description="Records what a PyTorch program asks of its CUDA allocator, for vramlab."
    )
    parser.add_argument("-o", "--out", metavar="FILE", default="snapshot.pickle.gz", help="the snapshot to write; packed if its name ends with .gz [%(default)s]")
    parser.add_argument("--stacks", choices=STACKS, default="none", help="record stacks of each request too [%(default)s]")
    parser.add_argument("--max-entries", type=int, metavar="N", help="keep only the newest N entries of the history [all]")
    parser.add_argument("--then", metavar="COMMAND", help='run vramlab with the snapshot, such as "advise" or "replay --verify"')
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module's name")
    parser.add_argument("program", help="the program to record")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its own arguments")
    parsed = parser.parse_args(args)
    if parsed.max_entries is not None and parsed.max_entries < 1:
        parser.error("--max-entries: expected 1 or more")
    if parsed.then is not None and not parsed.then.split():
        parser.error("--then: expected a command of vramlab")
    if not parsed.module and not os.path.isfile(parsed.program):
        parser.error(f"found no file {parsed.program}; a module is given with -m")
    return parsed


def _run(parsed):
    """Runs the program as Python would: the exit code, or what it raised."""
    sys.argv = [parsed.program, *parsed.args]
    try:
        if parsed.module:
            sys.path[0] = os.getcwd()
            runpy.run_module(parsed.program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(parsed.program))
            runpy.run_path(parsed.program, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def main(args=None):
    parsed = _arguments(args)
    try:
        code, raised = 1, None
        with record(parsed.out, parsed.stacks, parsed.max_entries):
            try:
                code = _run(parsed)
            except BaseException as error:  # noqa: BLE001 - told below, after the snapshot is written
                raised = error
    except Trouble as trouble:
        say(str(trouble))
        return trouble.code
    say(f"wrote {parsed.out}")
    if parsed.then:
        sys.stdout.flush()
        hand_over(parsed.out, parsed.then)
    if raised is not None:
        raise raised
    return code


if __name__ == "__main__":
    sys.exit(main())
