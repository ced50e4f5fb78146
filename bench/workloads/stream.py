"""One program writes a large array in megabytes, and reads it back."""
from bench import files, peers
from bench.measure import span
from bench.workloads import Metric, per_peer

NAME = "stream"
TITLE = "Writing in megabytes, reading from front to back"
TEXT = (
    "Turbulence in float32 in writes of 1 MiB; close; fsync; unmount. The time counts from before `open` "
    "until `close`, `fsync` or the unmount has returned. Then a cold read (unmounted, caches dropped, "
    "mounted again) and a second one. CPU is that of the whole machine from `open` until `fsync` has returned. "
    "bindfs gets an eighth of the bytes."
)
DEVICES = ("free", "throttled")
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "unmounted": Metric("unmounted", "MB/s"),
    "cold": Metric("cold read", "MB/s"),
    "warm": Metric("warm read", "MB/s"),
    "ratio": Metric("raw / stored", ""),
    "cpu": Metric("CPU", "s/GiB", -1),
}


def cases(setting, device):
    whole = files.raw(setting.wind(setting.size(1024, 96, 8)))

    def measure(place, last):
        data = peers.portion(place, whole)
        path, mega = place.at("wind.f32"), len(data) / 1e6
        with span() as writing:
            closed = files.write(path, data, files.MEBI)
            durable = closed + files.sync(path)
        stored = place.stored(path)
        unmounted = durable + place.remount()
        cold, warm = files.read(path), files.read(path)
        if last:
            files.compare(path, data)
        return {
            "close": mega / closed,
            "durable": mega / durable,
            "unmounted": mega / unmounted,
            "cold": mega / cold,
            "warm": mega / warm,
            "ratio": len(data) / stored,
            "cpu": writing.cpu / (len(data) / 2**30),
        }

    return per_peer(setting, setting.some(peers.on(device, peers.ALL)), measure)
