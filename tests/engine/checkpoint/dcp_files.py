"""The other side of dcp_test.cc: writes and reads distributed checkpoints with torch itself."""
import dataclasses
import os
import sys

# torch 1.13 has a dataclass default that Python 3.11 takes for mutable; a hash makes it acceptable.
_original = dataclasses.dataclass


def _patched(cls=None, **keywords):
    if cls is None:
        return lambda c: _patched(c, **keywords)
    if cls.__name__ == "TensorProperties":
        keywords["unsafe_hash"] = True
    return _original(cls, **keywords)


dataclasses.dataclass = _patched

import torch  # noqa: E402

try:
    import torch.distributed.checkpoint as dcp
    DIALECT = "2"
except ImportError:
    import torch.distributed._shard.checkpoint as dcp
    DIALECT = "1"


def state():
    return {"w": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2, dtype=torch.bfloat16), "step": 7,
            "scalar": torch.tensor(2.5), "groups": [{"lr": 0.5}]}


def write(folder):
    for single in (True, False):
        path = os.path.join(folder, "single" if single else "many")
        writer = dcp.FileSystemWriter(path, single_file_per_rank=single)
        (dcp.save if DIALECT == "2" else dcp.save_state_dict)(state(), storage_writer=writer, no_dist=True)
    print(DIALECT)


def check(folder):
    got = {"w": torch.zeros(3, 4), "b": torch.zeros(2, dtype=torch.bfloat16), "step": 0, "scalar": torch.tensor(0.0),
           "groups": []}
    reader = dcp.FileSystemReader(os.path.join(folder, "ours" + DIALECT))
    (dcp.load if DIALECT == "2" else dcp.load_state_dict)(got, storage_reader=reader, no_dist=True)
    for key, wanted in state().items():
        same = torch.equal(got[key], wanted) if isinstance(wanted, torch.Tensor) else got[key] == wanted
        assert same, (key, got[key], wanted)
    print("read")


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
