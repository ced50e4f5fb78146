"""Stored sizes, read times, slices and settle throughput, beside btrfs and nccopy."""
import glob
import os
import shutil
import statistics
import subprocess
import sys
import time

import netCDF4
import numpy as np

work = os.path.abspath(sys.argv[1])
shale = os.environ.get("SHALE_BIN", os.path.abspath("target/release/shale"))
store, mountpoint = work + "/store", work + "/mnt"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Mounted:
    """A store of its own, mounted; both are gone afterwards."""

    def __enter__(self):
        shutil.rmtree(store, ignore_errors=True)
        os.makedirs(mountpoint, exist_ok=True)
        self.mount()
        return self

    def mount(self, options="settle=off"):
        run(shale, "mount", "-o", options, store, mountpoint)

    def cold(self, options="settle=off"):
        run(shale, "unmount", mountpoint)
        drop_caches()
        self.mount(options)

    def __exit__(self, *_):
        run(shale, "unmount", mountpoint)
        shutil.rmtree(store)


class Btrfs:
    """A loop device with btrfs compress-force=zstd:3."""

    def __enter__(self):
        self.image, self.path = work + "/btrfs.img", work + "/btrfs"
        os.makedirs(self.path, exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(2 << 30)
        run("mkfs.btrfs", "-q", "-f", self.image)
        run("mount", "-o", "loop,compress-force=zstd:3", self.image, self.path)
        return self

    def __exit__(self, *_):
        run("umount", self.path)
        os.unlink(self.image)


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as knob:
        knob.write("3")


def ask(path, what):
    return int(os.getxattr(path, "user.shale.stat." + what))


def on_btrfs(fs, path):
    """Bytes on disk of one file."""
    copy = os.path.join(fs.path, os.path.basename(path))
    shutil.copy(path, copy)
    os.sync()
    text = run("compsize", "-b", copy)
    line = next(line for line in text.splitlines() if line.startswith("TOTAL"))
    return int(line.split()[2])


def read_through(path):
    begun = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    return time.perf_counter() - begun


def sizes(mounted):
    print("## Stored size of ferret-datasets\n")
    print("| file | raw | ingested | settled | btrfs zstd:3 | nccopy -d5 -s | btrfs / settled |")
    print("|---|---|---|---|---|---|---|")
    ratios, beaten, files = [], [], sorted(
        path
        for path in glob.glob(work + "/ferret/usr/share/ferret-vis/data/*")
        if path.endswith((".cdf", ".nc")) and os.path.getsize(path) > 200_000
    )
    for path in files:
        shutil.copy(path, mountpoint)
    for path in files:
        os.sync()
        here = os.path.join(mountpoint, os.path.basename(path))
        with open(here, "rb+") as file:
            os.fsync(file.fileno())
    before = {path: ask(os.path.join(mountpoint, os.path.basename(path)), "stored") for path in files}
    run(shale, "settle", "--wait", mountpoint)
    with Btrfs() as btrfs:
        for path in files:
            here = os.path.join(mountpoint, os.path.basename(path))
            after = ask(here, "stored")
            peer = on_btrfs(btrfs, path)
            deflated = work + "/deflated.nc"
            run("nccopy", "-d5", "-s", path, deflated)
            other = os.path.getsize(deflated)
            os.unlink(deflated)
            ratios.append(peer / after)
            if other <= after:
                beaten.append(os.path.basename(path))
            print(
                f"| {os.path.basename(path)} | {os.path.getsize(path)} | {before[path]} | {after} "
                f"| {peer} | {other} | {peer / after:.2f} |"
            )
    mean = statistics.geometric_mean(ratios)
    print(f"\nGeometric mean of btrfs / settled: {mean:.2f} (asked: 1.45).")
    print(f"Larger than nccopy -d5 -s: {', '.join(beaten) or 'none'}.\n")


def field(*shape):
    rng = np.random.default_rng(1)
    value = np.zeros(shape, "f4")
    for axis, length in enumerate(shape):
        wave = np.sin(np.linspace(0, 3 + 2 * axis, length)).astype("f4")
        value += wave.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return 280 + 9 * value + 0.01 * rng.standard_normal(shape, dtype="f4")


def large(mounted):
    shape = (48, 20, 181, 360)
    path = mountpoint + "/large.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as data:
        for name, length in zip("tzyx", shape):
            data.createDimension(name, length)
        data.createVariable("temperature", "f4", tuple("tzyx"))[:] = field(*shape)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    raw, before = os.path.getsize(path), ask(path, "stored")

    def cold_read():
        mounted.cold()
        return read_through(path)

    unsettled = statistics.median(cold_read() for _ in range(3))
    begun = time.perf_counter()
    run(shale, "settle", "--wait", path)
    took = time.perf_counter() - begun
    after = ask(path, "stored")
    settled = statistics.median(cold_read() for _ in range(3))
    print("## One variable of 4 dimensions\n")
    print(f"{shape}, float32, {raw >> 20} MiB: {before} bytes ingested, {after} settled.\n")
    print(f"- settled with one worker at {raw / took / 1e6:.0f} MB/s (asked: 80)")
    print(
        f"- cold read front to back: {raw / unsettled / 1e6:.0f} MB/s before, "
        f"{raw / settled / 1e6:.0f} MB/s after ({unsettled / settled:.2f} times as fast; asked: 1)"
    )
    mounted.cold()
    frames = ask(mountpoint, "frames_read")
    run("ncdump", "-h", path)
    print(f"- `ncdump -h` read {ask(mountpoint, 'frames_read') - frames} frames (asked: at most 3)\n")
    print("The share of the tiles is what a mount without page cache reads: no more than asked for.\n")
    print("| slice | of the elements | tiles, of the stored bytes | read, of the stored bytes | read / tiles (asked: at most 2) |")
    print("|---|---|---|---|---|")
    for name, index in [
        ("[t, z, :, :]", (7, 3, slice(None), slice(None))),
        ("[t, :, y, :]", (7, slice(None), 90, slice(None))),
        ("[t, :, :, x]", (7, slice(None), slice(None), 180)),
        ("[:, z, y, :]", (slice(None), 3, 90, slice(None))),
        ("[:, z, :, x]", (slice(None), 3, slice(None), 180)),
        ("[:, :, y, x]", (slice(None), slice(None), 90, 180)),
    ]:
        reads = []
        for options in ["settle=off,direct_io", "settle=off"]:
            mounted.cold(options)
            with netCDF4.Dataset(path) as data:
                # Opening reads the first megabytes, whatever the file system.
                before = ask(mountpoint, "bytes_read")
                piece = data["temperature"][index]
            reads.append(ask(mountpoint, "bytes_read") - before)
        share = piece.size / np.prod(shape)
        print(
            f"| {name} | {100 * share:.3f} % | {100 * reads[0] / after:.1f} % "
            f"| {100 * reads[1] / after:.1f} % | {reads[1] / reads[0]:.2f} |"
        )
    print()


with Mounted() as mounted:
    sizes(mounted)
with Mounted() as mounted:
    large(mounted)
