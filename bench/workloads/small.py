"""One program writes a large array 8 KiB at a time."""
from bench import files, peers
from bench.measure import span
from bench.workloads import Metric, per_peer

NAME = "small"
TITLE = "Writing 8 KiB at a time"
TEXT = (
    "The same bytes in writes of 8 KiB, which is what the netCDF library does with classic files. bindfs "
    "and ShaleFS with `-o direct_io`, to which each is a request, get an eighth of them."
)
DEVICES = ("free",)
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "ratio": Metric("raw / stored", ""),
    "cpu": Metric("CPU", "s/GiB", -1),
}


def cases(setting, device):
    whole = files.raw(setting.wind(setting.size(1024, 128, 4)))

    def measure(place, last):
        data = peers.portion(place, whole, (peers.BINDFS, peers.DIRECT))
        path, mega = place.at("wind.f32"), len(data) / 1e6
        with span() as writing:
            closed = files.write(path, data, 8 << 10)
            durable = closed + files.sync(path)
        if last:
            place.remount()
            files.compare(path, data)
        return {
            "close": mega / closed,
            "durable": mega / durable,
            "ratio": len(data) / place.stored(path),
            "cpu": writing.cpu / (len(data) / 2**30),
        }

    return per_peer(setting, setting.some(peers.ALL, (peers.EXT4, peers.SHALE)), measure)
