"""Memory of the daemon with a small budget."""
import numpy as np

from bench import files, peers
from bench.measure import in_children
from bench.workloads import Case, Metric
from bench.workloads.files import delete, fill

NAME = "memory"
TITLE = "Memory of a small mount"
TEXT = (
    "ShaleFS with `--memory 128M`: writes in megabytes and by four processes to four files at once, cold and random "
    "reads, many small files. The most memory the daemon had resident."
)
DEVICES = ("throttled", "free")
METRICS = {"peak": Metric("peak", "MiB", -1)}
BUDGET = 128 << 20


def cases(setting, device):
    if setting.throttled and device != "throttled":
        return []
    values = files.raw(setting.wind(setting.size(256, 96, 8)))
    offsets = [int(at) * 4096 for at in np.random.default_rng(2).integers(0, len(values) // 4096, 500)]
    quarter = len(values) // 4

    def measure(place, last):
        peer = place.peer
        peer.unmount_store(place)
        peer.mount_store(place, f"{peer.options},memory={BUDGET}")
        paths = [place.at(f"wind{number}.f32") for number in range(4)]
        parts = [values[number * quarter : (number + 1) * quarter] for number in range(4)]

        def writer(path, part):
            def work(ready):
                ready()
                files.write(path, part, files.MEBI)

            return work

        whole = place.at("wind.f32")
        files.write(whole, values, files.MEBI)
        in_children(*(writer(path, part) for path, part in zip(paths, parts)))
        _, names = fill(place.at("many"), setting.amount(5000, 1000, 50))
        delete(names)
        files.forget(whole)
        files.compare(whole, values)
        for path, part in zip(paths, parts):
            files.compare(path, part)
        files.forget(whole)
        files.read_at(whole, offsets, 4096)
        place.observe()
        peak, place.peak = place.peak, 0
        return {"peak": peak / 2**20}

    return [Case("ShaleFS --memory 128M", peers.SHALE, measure)]
