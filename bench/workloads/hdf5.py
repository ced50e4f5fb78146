"""HDF5 files, and applications that compress their own data."""
import time

from bench import files, peers
from bench.measure import ChildFailed, in_child
from bench.workloads import Case, Metric, formats

NAME = "hdf5"
TITLE = "HDF5, and compression in the application"
TEXT = (
    "A 3-D float32 array written plane by plane. Above: h5py without filters, contiguous and in chunks of 1 MiB, "
    "on each file system. Below: the application compresses, in chunks of 1 MiB, on ext4; each library with its "
    "default number of threads. ShaleFS is given the uncompressed file."
)
DEVICES = ("free", "throttled")
QUICK = ("throttled",)
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "ratio": Metric("raw / stored", ""),
}
SIDE = 512
#: The row that is compared with the others in words.
OWN = "shale contiguous"


def cases(setting, device):
    values = setting.wind(setting.size(128, 32, 4)).reshape(-1, SIDE, SIDE)
    mega = values.nbytes / 1e6

    def case(peer, key, label, form):
        def measure(place, last):
            path = place.at("field" + form.suffix)

            def write(ready):
                write = form.writer()
                ready()
                begun = time.perf_counter()
                write(path, values)
                closed = time.perf_counter() - begun
                names = list(peers.files(path))
                return closed, closed + sum(files.sync(name) for name in names)

            def check(ready):
                if (form.reader()(path) != values).any():
                    raise files.Differs(path)

            try:
                closed, durable = in_child(write)
            except ChildFailed as error:
                if "NotSupported" in str(error) or "ModuleNotFoundError" in str(error):
                    raise peers.Unavailable(str(error).strip().splitlines()[-1].partition(": ")[2]) from error
                raise
            stored = place.stored(path)
            if last:
                place.remount()
                in_child(check)
            return {"close": mega / closed, "durable": mega / durable, "ratio": values.nbytes / stored}

        return Case(label, peer, measure, key=key)

    here = setting.some(peers.on(device, peers.DEFAULTS), (peers.EXT4, peers.SHALE))
    result = []
    for form in (formats.Hdf5("contiguous", None), formats.Hdf5("chunked", {})):
        for peer in here:
            result.append(case(peer, f"{peer} {form.name}", f"{setting.peers[peer].label}, {form.name}", form))
    for form in formats.compressing(setting.smoke):
        result.append(case(peers.EXT4, "app " + form.name, form.name, form))
    return result


def base(key):
    """The row to compare with."""
    return "ext4 chunked" if key.startswith("app ") or key.endswith("chunked") else "ext4 contiguous"
