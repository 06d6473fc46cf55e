"""The other side of torch_file_test.cc. write FOLDER: files as training scripts make them. check FOLDER: reads what the
test wrote, with weights_only=True where this torch can."""
import argparse
import collections
import os
import pickle
import random
import sys
import types

import torch


def values():
    torch.manual_seed(3)
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    out = {
        "tensor": torch.arange(6, dtype=torch.int64),
        "one": {"a": 1},
        "dict": {"a": torch.ones(2), "b": [1, 2.5, None, True, "text"], "c": {"d": b"\x00\xff"}},
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        "types": {str(t).split(".")[1]: torch.tensor([1, 0, 1]).to(t) for t in
                  (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16,
                   torch.int32, torch.int64, torch.bool)},
        "views": {"row": base[1], "column": base[:, 2], "all": base, "t": base.t()},
        "shapes": {"zero": torch.zeros(0, 3), "scalar": torch.tensor(2.5), "size": base.size()},
        "ints": [0, -1, 255, 256, 65535, 65536, 2**31 - 1, -2**31, 2**31, 2**40, -2**40, 2**63 - 1, -2**63, 2**70, -2**70],
        "namespace": {"args": argparse.Namespace(hidden_size=8, lr=0.1, name="x"), "simple": types.SimpleNamespace(k=1)},
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": {"torch": torch.get_rng_state(), "random": random.getstate()},
        "opaque": {"dtype": torch.float32, "device": torch.device("cpu"), "set": {1}, "complex": 1 + 2j,
                   "default": collections.defaultdict(int, {"k": 5}), "counter": collections.Counter("aab")},
    }
    try:
        import numpy
        numpy.random.seed(7)
        out["numpy"] = {"rng": numpy.random.get_state(), "scalar": numpy.float64(1.5), "int": numpy.int64(-3),
                        "array": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
                        "fortran": numpy.asfortranarray(numpy.arange(6, dtype=numpy.int32).reshape(2, 3))}
    except ImportError:
        pass
    return out


def write(folder):
    for name, value in values().items():
        torch.save(value, os.path.join(folder, name + ".pt"))
        torch.save(value, os.path.join(folder, name + ".legacy.pt"), _use_new_zipfile_serialization=False)
        for protocol in (3, 4, 5):
            torch.save(value, os.path.join(folder, f"{name}.{protocol}.pt"), pickle_protocol=protocol)
    cycle = {"a": 1}
    cycle["self"] = cycle
    torch.save(cycle, os.path.join(folder, "cycle.pt"))
    with open(os.path.join(folder, "facts"), "w") as out:
        out.write(f"{random.getstate()[1][0]}\n")
        out.write(f"{float(torch.get_rng_state().to(torch.float64).sum())}\n")


def load(path, weights_only):
    return torch.load(path, map_location="cpu", weights_only=weights_only)


def check(folder):
    plain = load(os.path.join(folder, "plain.pt"), True)
    assert plain["none"] is None and plain["yes"] is True and plain["text"] == "\u00e9", plain
    assert plain["ints"] == [0, -1, 300, 70000, 2**31, -2**40, 2**63 - 1], plain["ints"]
    assert plain["f32"].tolist() == [1.5, -2.0] and plain["bf16"].dtype == torch.bfloat16
    assert plain["state"] == {0: {"step": 3}, 1: {"step": 4}}, plain["state"]
    assert plain["row"].tolist() == [3.0, 4.0, 5.0] and plain["all"].shape == (2, 3)
    plain["all"][1, 0] = 99.0  # one storage
    assert plain["row"][0] == 99.0
    assert plain["empty"].shape == (0, 2) and plain["scalar"].item() == 7.0
    # Floats in containers need the BINFLOAT that weights_only of 1.13 lacks.
    major = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])
    floats = load(os.path.join(folder, "floats.pt"), major >= (2, 0))
    assert floats["lr"] == 0.1 and floats["nan"] != floats["nan"] and floats["bytes"] == b"\x00\xff\x80"
    again = load(os.path.join(folder, "again.pt"), False)
    assert isinstance(again["args"], argparse.Namespace) and again["args"].hidden_size == 8
    assert isinstance(again["simple"], types.SimpleNamespace) and again["simple"].k == 1
    tuple_, counter = load(os.path.join(folder, "random.pt"), False), load(os.path.join(folder, "opaque.pt"), False)
    random.setstate(tuple_["random"])
    assert counter["counter"] == collections.Counter("aab") and counter["set"] == {1} and counter["complex"] == 1 + 2j
    assert counter["default"]["missing"] == 0 and counter["dtype"] is torch.float32
    ints = load(os.path.join(folder, "ints.pt"), False)
    assert ints == values()["ints"], ints
    print("read", torch.__version__)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
