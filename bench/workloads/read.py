"""Random reads, and slices of a 4-D variable."""
import time

import numpy as np

from bench import data, files, peers
from bench.measure import in_child, run
from bench.workloads import Case, Metric, per_peer

NAME = "read"
TITLE = "Random reads and slices"
TEXT = (
    "Random reads without read-ahead from a file of turbulence, cold, and again when the page cache has been emptied "
    "but what a daemon keeps (ShaleFS: decoded chunks; bindfs: pages of ext4) is still there. Slices: xarray reads "
    "2-D slices of a 4-D variable of a classic NetCDF file, cold, the same six in every repetition, on the throttled device."
)
DEVICES = ("free", "throttled")
QUICK = ("free",)
METRICS = {
    "cold4k": Metric("4 KiB, cold", "reads/s"),
    "cold1m": Metric("1 MiB, cold", "MB/s"),
    "kept4k": Metric("4 KiB, page cache empty", "reads/s"),
    "kept1m": Metric("1 MiB, page cache empty", "MB/s"),
    "slices": Metric("six slices, cold", "ms", -1),
}
SLICES = (
    {"t": 3, "z": 3},
    {"t": 3, "y": 90},
    {"t": 3, "x": 180},
    {"z": 3, "y": 90},
    {"z": 3, "x": 180},
    {"y": 90, "x": 180},
)


def cases(setting, device):
    here = setting.some(peers.on(device, peers.CORE), (peers.EXT4, peers.BINDFS, peers.SHALE))
    result = per_peer(setting, here, random_reads(setting), "random")
    if device == "throttled" or setting.smoke:
        slices = slice_reads(setting)
        result += per_peer(setting, here, slices, "slices")
        label = setting.peers[peers.SHALE].label + ", settled"
        result.append(Case(label, peers.SHALE, lambda place, last: slices(place, last, True), "slices", "settled"))
    return result


def random_reads(setting):
    values = files.raw(setting.wind(setting.size(128, 64, 4)))
    rng = np.random.default_rng(3)
    few = [int(page) * 4096 for page in rng.integers(0, len(values) // 4096, setting.amount(1000, 500, 50))]
    many = [int(page) * 4096 for page in rng.integers(0, len(values) // 4096, setting.amount(10000, 5000, 100))]
    large = [int(at) << 20 for at in rng.permutation(len(values) >> 20)[:64]]

    def measure(place, last):
        path = place.at("wind.f32")
        files.write(path, values, files.MEBI)
        files.sync(path)
        place.remount()
        cold4k = sum(files.read_at(path, few, 4096))
        place.remount()
        cold1m = sum(files.read_at(path, large, files.MEBI))
        files.read(path)
        files.forget(path)
        kept4k = sum(files.read_at(path, many, 4096))
        files.forget(path)
        kept1m = sum(files.read_at(path, large, files.MEBI))
        if last:
            files.compare(path, values)
        mega = len(large) * files.MEBI / 1e6
        return {
            "cold4k": len(few) / cold4k,
            "cold1m": mega / cold1m,
            "kept4k": len(many) / kept4k,
            "kept1m": mega / kept1m,
        }

    return measure


def slice_reads(setting):
    shape = (24, 20, 181, 360) if not setting.smoke else (4, 4, 181, 360)
    values = data.smooth(*shape)

    def measure(place, last, settled=False):
        path = place.at("levels.nc")

        def write(ready):
            import netCDF4

            with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
                for name, length in zip("tzyx", shape):
                    file.createDimension(name, length)
                file.createVariable("temperature", "f4", tuple("tzyx"))[:] = values

        def read(ready):
            import xarray

            ready()
            begun = time.perf_counter()
            with xarray.open_dataset(path, engine="netcdf4", decode_times=False) as file:
                found = [file["temperature"].isel(index).values for index in SLICES]
            taken = time.perf_counter() - begun
            for index, piece in zip(SLICES, found):
                exact = tuple(index.get(name, slice(None)) for name in "tzyx")
                if (piece != values[exact]).any():
                    raise files.Differs(f"{path}: {index}")
            return taken

        in_child(write)
        files.sync(path)
        if settled:
            run(place.peer.binary, "settle", "--wait", path)
        place.remount()
        return {"slices": 1000 * in_child(read)}

    return measure
