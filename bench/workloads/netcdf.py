"""netCDF4-python writes a classic file, record by record."""
import time

from bench import files, peers
from bench.measure import in_child
from bench.workloads import Metric, per_peer

NAME = "netcdf"
TITLE = "A classic NetCDF file with an unlimited dimension"
TEXT = (
    "netCDF4-python appends records of four float32 variables (512 x 512 each) to a classic file with 64-bit "
    "offsets. The library writes them in pieces of 8 KiB. bindfs gets an eighth of the records."
)
DEVICES = ("free",)
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "ratio": Metric("raw / stored", ""),
}
VARIABLES = ("u", "v", "w", "t")
SIDE = 512


def cases(setting, device):
    whole = setting.wind(setting.size(512, 64, 8)).reshape(-1, len(VARIABLES), SIDE, SIDE)

    def measure(place, last):
        values = peers.portion(place, whole)
        mega = values.nbytes / 1e6
        path = place.at("history.nc")

        def write(ready):
            import netCDF4

            ready()
            begun = time.perf_counter()
            with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as data:
                data.createDimension("time", None)
                data.createDimension("y", SIDE)
                data.createDimension("x", SIDE)
                variables = [data.createVariable(name, "f4", ("time", "y", "x")) for name in VARIABLES]
                for step, record in enumerate(values):
                    for variable, plane in zip(variables, record):
                        variable[step] = plane
            closed = time.perf_counter() - begun
            return closed, closed + files.sync(path)

        def check(ready):
            import netCDF4

            with netCDF4.Dataset(path) as data:
                data.set_auto_mask(False)
                for step, record in enumerate(values):
                    for name, plane in zip(VARIABLES, record):
                        if (data[name][step] != plane).any():
                            raise files.Differs(f"{path}: {name}[{step}]")

        closed, durable = in_child(write)
        stored = place.stored(path)
        if last:
            place.remount()
            in_child(check)
        return {"close": mega / closed, "durable": mega / durable, "ratio": values.nbytes / stored}

    return per_peer(setting, setting.some(peers.DEFAULTS, (peers.EXT4, peers.SHALE)), measure)
