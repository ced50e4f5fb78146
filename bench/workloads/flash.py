"""Blocks of an adaptive mesh are appended, variable by variable."""
import time

from bench import data, files, peers
from bench.measure import in_child
from bench.workloads import Metric, per_peer

NAME = "flash"
TITLE = "Appending blocks of nine variables, as FLASH does"
TEXT = (
    "h5py appends blocks of 16 x 16 x 16 float32 to nine resizable variables in turn, 256 blocks at a time, in "
    "chunks of 64 blocks. Two blocks in five are fill."
)
DEVICES = ("free", "throttled")
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "ratio": Metric("raw / stored", ""),
}
VARIABLES = ("dens", "pres", "temp", "velx", "vely", "velz", "gpot", "pden", "ener")
STEP = 256


def cases(setting, device):
    count = max(STEP, setting.size(24, 4, 1) // (16**3 * 4) // STEP * STEP)
    values = [data.blocks(count, seed) for seed in range(len(VARIABLES))]
    size = sum(array.nbytes for array in values)

    def measure(place, last):
        path = place.at("plt_cnt_0001.h5")

        def write(ready):
            import h5py

            ready()
            begun = time.perf_counter()
            with h5py.File(path, "w") as file:
                shape, most = (0, 16, 16, 16), (None, 16, 16, 16)
                variables = [file.create_dataset(name, shape, "f4", maxshape=most, chunks=(64, 16, 16, 16)) for name in VARIABLES]
                for first in range(0, count, STEP):
                    for variable, array in zip(variables, values):
                        variable.resize(first + STEP, axis=0)
                        variable[first : first + STEP] = array[first : first + STEP]
            closed = time.perf_counter() - begun
            return closed, closed + files.sync(path)

        def check(ready):
            import h5py

            with h5py.File(path) as file:
                for name, array in zip(VARIABLES, values):
                    if (file[name][:] != array).any():
                        raise files.Differs(f"{path}: {name}")

        closed, durable = in_child(write)
        stored = place.stored(path)
        if last:
            place.remount()
            in_child(check)
        return {"close": size / 1e6 / closed, "durable": size / 1e6 / durable, "ratio": size / stored}

    return per_peer(setting, setting.some(peers.on(device, peers.CORE)), measure)
