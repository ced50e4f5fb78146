"""Plain reading and writing, timed, from buffers that exist before the clock starts."""
import os
import time

MEBI = 1 << 20


class Differs(Exception):
    """The bytes read differ from those written."""


def raw(array):
    """The bytes of an array, without a copy."""
    return memoryview(array).cast("B")


def write(path, data, piece):
    """Writes all of `data` in pieces; seconds until close has returned."""
    parts = [data[offset : offset + piece] for offset in range(0, len(data), piece)]
    put = os.write
    begun = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for part in parts:
        if put(descriptor, part) != len(part):
            raise OSError(f"{path}: a write was cut short")
    os.close(descriptor)
    return time.perf_counter() - begun


def sync(path):
    """Seconds of an fsync on a file that has been closed."""
    begun = time.perf_counter()
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - begun


def read(path, piece=MEBI):
    """Seconds to read a file from front to back."""
    buffer = bytearray(piece)
    begun = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    while os.readv(descriptor, [buffer]):
        pass
    os.close(descriptor)
    return time.perf_counter() - begun


def compare(path, data):
    """Raises unless the file has exactly these bytes."""
    if os.path.getsize(path) != len(data):
        raise Differs(f"{path} has {os.path.getsize(path)} bytes, not {len(data)}")
    with open(path, "rb", buffering=0) as file:
        for offset in range(0, len(data), MEBI):
            if file.read(MEBI) != data[offset : offset + MEBI]:
                raise Differs(f"{path} differs in the MiB at {offset}")


def forget(path):
    """Drops a file from the page cache; decoded data in a daemon stays."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_at(path, offsets, piece):
    """Seconds of each of a series of reads, without read-ahead."""
    buffer = bytearray(piece)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    taken = []
    for offset in offsets:
        begun = time.perf_counter()
        os.preadv(descriptor, [buffer], offset)
        taken.append(time.perf_counter() - begun)
    os.close(descriptor)
    return taken
