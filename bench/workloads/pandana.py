"""Very many small variables in one file."""
import time

import numpy as np

from bench import files, peers
from bench.measure import in_child
from bench.workloads import Metric, per_peer

NAME = "pandana"
TITLE = "Many small variables, as Pandana has them"
TEXT = (
    "h5py writes event tables: groups of 1-D variables of mixed types (integers that count up, flags, detector "
    "readings), 100 to 300 KiB each, in chunks of 128 KiB; then, cold, one variable in eight is read."
)
DEVICES = ("free",)
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "cold": Metric("cold read of one in eight", "MB/s"),
    "ratio": Metric("raw / stored", ""),
}


def events(setting):
    rng = np.random.default_rng(7)
    result = {}
    for group in range(setting.amount(24, 8, 2)):
        count = int(rng.integers(25_000, 75_000))
        hits = rng.poisson(0.3, count)
        for column in range(16):
            if column % 4 == 0:
                values = np.cumsum(hits).astype("u4")
            elif column % 4 == 1:
                values = rng.gamma(2.0, 20.0, count).astype("f4")
            elif column % 4 == 2:
                values = rng.integers(0, 2, count).astype("u4")
            else:
                values = np.round(rng.standard_normal(count) * 100).astype("i4")
            result[f"rec.{group:02}/column{column:02}"] = values
    return result


def cases(setting, device):
    values = events(setting)
    size = sum(array.nbytes for array in values.values())
    chosen = list(values)[::8]
    part = sum(values[name].nbytes for name in chosen)

    def measure(place, last):
        path = place.at("events.h5")

        def write(ready):
            import h5py

            ready()
            begun = time.perf_counter()
            with h5py.File(path, "w") as file:
                for name, array in values.items():
                    file.create_dataset(name, data=array, chunks=(32 << 10,), maxshape=(None,))
            closed = time.perf_counter() - begun
            return closed, closed + files.sync(path)

        def read(ready):
            import h5py

            ready()
            begun = time.perf_counter()
            with h5py.File(path) as file:
                found = {name: file[name][:] for name in chosen}
            taken = time.perf_counter() - begun
            for name in chosen:
                if (found[name] != values[name]).any():
                    raise files.Differs(f"{path}: {name}")
            return taken

        closed, durable = in_child(write)
        stored = place.stored(path)
        place.remount()
        return {
            "close": size / 1e6 / closed,
            "durable": size / 1e6 / durable,
            "cold": part / 1e6 / in_child(read),
            "ratio": size / stored,
        }

    return per_peer(setting, setting.some(peers.CORE), measure)
