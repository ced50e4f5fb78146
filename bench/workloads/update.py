"""Changes to a file that exists."""
import os
import time

import numpy as np

from bench import files, peers
from bench.workloads import Metric, per_peer

NAME = "update"
TITLE = "Changing a file that exists"
TEXT = (
    "A durable file of turbulence; a tenth of it is overwritten in place (64 KiB at random places), a tenth is "
    "appended, it is truncated to half; each followed by an fsync, which is part of the time."
)
DEVICES = ("free", "throttled")
METRICS = {
    "overwrite": Metric("overwrite, durable", "MB/s"),
    "append": Metric("append, durable", "MB/s"),
    "truncate": Metric("truncate, durable", "ms", -1),
    "read": Metric("cold read afterwards", "MB/s"),
}
PIECE = 64 << 10


def cases(setting, device):
    # A tenth of it is more than a throttle lets pass at once.
    size = setting.size(320, 64, 4)
    source = setting.wind(size + size // 10 // PIECE * PIECE)
    values, extra = files.raw(source)[:size], files.raw(source)[size:]
    rng = np.random.default_rng(5)
    places = [int(at) * PIECE for at in rng.permutation(size // PIECE)[: size // PIECE // 10]]
    fresh = memoryview(bytes(reversed(extra[:PIECE].tobytes())))

    def measure(place, last):
        path = place.at("wind.f32")
        files.write(path, values, files.MEBI)
        files.sync(path)
        place.remount()
        descriptor = os.open(path, os.O_RDWR)

        begun = time.perf_counter()
        for offset in places:
            os.pwrite(descriptor, fresh, offset)
        os.fsync(descriptor)
        overwrite = time.perf_counter() - begun

        begun = time.perf_counter()
        for offset in range(0, len(extra), files.MEBI):
            os.pwrite(descriptor, extra[offset : offset + files.MEBI], size + offset)
        os.fsync(descriptor)
        append = time.perf_counter() - begun

        if last:
            expected = bytearray(values) + bytearray(extra)
            for offset in places:
                expected[offset : offset + PIECE] = fresh
            files.compare(path, memoryview(expected))

        begun = time.perf_counter()
        os.ftruncate(descriptor, size // 2)
        os.fsync(descriptor)
        truncate = time.perf_counter() - begun
        os.close(descriptor)
        place.remount()
        read = files.read(path)
        if last:
            files.compare(path, memoryview(expected)[: size // 2])
        return {
            "overwrite": len(places) * PIECE / 1e6 / overwrite,
            "append": len(extra) / 1e6 / append,
            "truncate": 1000 * truncate,
            "read": size / 2 / 1e6 / read,
        }

    return per_peer(setting, setting.some(peers.on(device, peers.CORE)), measure)
