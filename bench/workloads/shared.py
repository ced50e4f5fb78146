"""Four processes write one file in a checkerboard."""
import os

from bench import data, files, peers
from bench.measure import in_children
from bench.workloads import Metric, per_peer

NAME = "shared"
TITLE = "Four processes write one file in a checkerboard"
TEXT = (
    "A 2-D array of bytes, 128 KiB wide, divided into two by two blocks; each of four processes writes the rows of "
    "its block, 64 KiB at a time, with pwrite. Of every 8 MiB, 100, 50 or 10 % is random and the rest zero. Durable: "
    "when all have closed the file and an fsync has returned."
)
DEVICES = ("free", "throttled")
QUICK = ("throttled",)
METRICS = {
    "close": Metric("close", "MB/s"),
    "durable": Metric("durable", "MB/s"),
    "ratio": Metric("raw / stored", ""),
}
PIECE = 64 << 10


def cases(setting, device):
    size = setting.size(384, 128, 4)
    rows = size // (2 * PIECE)
    few = (peers.EXT4, peers.FORCE3, peers.SHALE)
    result = []
    for share in (50,) if device == "free" else (50, 10) if setting.quick else (100, 50, 10):
        here = setting.some(few if share == 100 else peers.on(device, peers.DEFAULTS), few)
        chunks = [data.mixed(share, min(8 << 20, size // 4), rank) for rank in range(4)]
        result += per_peer(setting, here, measure(rows, chunks), f"random-{share}")
    return result


def measure(rows, chunks):
    size = rows * 2 * PIECE

    def pieces(rank):
        """Offset and bytes of everything one process writes, in order."""
        chunk = files.raw(chunks[rank])
        first, column = rank // 2 * (rows // 2), rank % 2
        for row in range(rows // 2):
            at = row * PIECE % len(chunk)
            yield ((first + row) * 2 + column) * PIECE, chunk[at : at + PIECE]

    def measure(place, last):
        path = place.at("shared.bin")

        def writer(rank):
            def work(ready):
                todo = list(pieces(rank))
                ready()
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
                for offset, piece in todo:
                    if os.pwrite(descriptor, piece, offset) != PIECE:
                        raise OSError("a write was cut short")
                os.close(descriptor)

            return work

        begun, _ = in_children(*(writer(rank) for rank in range(4)))
        closed = begun.seconds
        durable = closed + files.sync(path)
        stored = place.stored(path)
        if last:
            place.remount()
            with open(path, "rb", buffering=0) as file:
                for rank in range(4):
                    for offset, piece in pieces(rank):
                        file.seek(offset)
                        if file.read(PIECE) != piece:
                            raise files.Differs(f"{path} at {offset}")
        return {"close": size / 1e6 / closed, "durable": size / 1e6 / durable, "ratio": size / stored}

    return measure
