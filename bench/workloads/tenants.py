"""One program writes in bulk while another needs small reads quickly."""
import os
import select
import time

import numpy as np

from bench import files, peers
from bench.measure import Child
from bench.stats import percentile
from bench.workloads import Metric, per_peer

NAME = "tenants"
TITLE = "Two tenants"
TEXT = (
    "One program reads 4 KiB at random places of a file that was cold at the beginning, with 2 ms of rest after each; "
    "first alone for a second, then while another writes turbulence in megabytes, closes and calls fsync."
)
DEVICES = ("free", "throttled")
METRICS = {
    "alone": Metric("99 % of reads, alone", "ms", -1),
    "middle": Metric("half of the reads", "ms", -1),
    "high": Metric("99 % of reads", "ms", -1),
    "worst": Metric("slowest read", "ms", -1),
    "durable": Metric("writer, durable", "MB/s"),
}
REST = 0.002


def cases(setting, device):
    size = setting.size(256, 64, 4)
    values = files.raw(setting.wind(size))
    wanted = values[: setting.size(128, 32, 2)]

    def measure(place, last):
        asked, bulk = place.at("asked.f32"), place.at("bulk.f32")
        files.write(asked, wanted, files.MEBI)
        files.sync(asked)
        place.remount()
        rng = np.random.default_rng(11)
        descriptor = os.open(asked, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        buffer = bytearray(4096)

        def reads(enough):
            taken = []
            while not enough():
                offset = int(rng.integers(len(wanted) // 4096)) * 4096
                begun = time.perf_counter()
                os.preadv(descriptor, [buffer], offset)
                taken.append(1000 * (time.perf_counter() - begun))
                if buffer != wanted[offset : offset + 4096]:
                    raise files.Differs(f"{asked} at {offset}")
                time.sleep(REST)
            return taken

        def write(ready):
            ready()
            begun = time.perf_counter()
            files.write(bulk, values, files.MEBI)
            files.sync(bulk)
            return time.perf_counter() - begun

        until = time.perf_counter() + setting.amount(1.0, 0.5, 0.1)
        alone = reads(lambda: time.perf_counter() > until)
        writer = Child(write)
        try:
            writer.until_ready()
            writer.go()
            busy = reads(lambda: select.select([writer.answers], [], [], 0)[0])
            durable = writer.result()
        finally:
            writer.end()
            os.close(descriptor)
        if last:
            place.remount()
            files.compare(bulk, values)
        return {
            "alone": percentile(alone, 0.99),
            "middle": percentile(busy, 0.5),
            "high": percentile(busy, 0.99),
            "worst": max(busy),
            "durable": size / 1e6 / durable,
        }

    return per_peer(setting, setting.some(peers.on(device, peers.CORE)), measure)
