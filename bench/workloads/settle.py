"""The gain of settling: stored sizes, speed of reading, slices, the cost of the index."""
import glob
import os
import shutil
import time

import numpy as np

from bench import data, files, peers
from bench.measure import in_child, run, span
from bench.stats import geometric_mean
from bench.workloads import Case, Metric

NAME = "settle"
TITLE = "Settled files"
TEXT = (
    "One float32 variable of four dimensions in a classic NetCDF file, read cold from front to back before and after "
    "it settles (one worker)."
)
DEVICES = ("free", "throttled")
METRICS = {
    "before": Metric("cold read, as written", "MB/s"),
    "after": Metric("cold read, settled", "MB/s"),
    "gain": Metric("settled / as written", ""),
    "settle": Metric("settling", "MB/s"),
    "ratio": Metric("raw / stored, as written", ""),
    "dense": Metric("raw / stored, settled", ""),
}
SLICES = ("[t, z, :, :]", "[t, :, y, :]", "[t, :, :, x]", "[:, z, y, :]", "[:, z, :, x]", "[:, :, y, x]")


def shape(setting):
    return setting.amount((48, 20, 181, 360), (12, 20, 181, 360), (4, 4, 181, 360))


def write(path, values):
    def work(ready):
        import netCDF4

        with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
            for name, length in zip("tzyx", values.shape):
                file.createDimension(name, length)
            file.createVariable("temperature", "f4", tuple("tzyx"))[:] = values

    in_child(work)
    files.sync(path)


def check(path, values):
    def work(ready):
        import netCDF4

        with netCDF4.Dataset(path) as file:
            file.set_auto_mask(False)
            if (file["temperature"][:] != values).any():
                raise files.Differs(path)

    in_child(work)


def cases(setting, device):
    values = data.smooth(*shape(setting))

    def plain(place, last):
        path = place.at("levels.nc")
        write(path, values)
        ratio = values.nbytes / place.stored(path)
        place.remount()
        return {"before": os.path.getsize(path) / 1e6 / files.read(path), "ratio": ratio}

    def settled(place, last):
        path = place.at("levels.nc")
        write(path, values)
        mega, before = os.path.getsize(path) / 1e6, place.stored(path)
        place.remount()
        first = mega / files.read(path)
        begun = time.perf_counter()
        run(place.peer.binary, "settle", "--wait", path)
        settle = mega / (time.perf_counter() - begun)
        after = place.stored(path)
        place.remount()
        second = mega / files.read(path)
        if last:
            check(path, values)
        return {
            "before": first,
            "after": second,
            "gain": second / first,
            "settle": settle,
            "ratio": values.nbytes / before,
            "dense": values.nbytes / after,
        }

    labels = {name: peer.label for name, peer in setting.peers.items()}
    others = [] if setting.quick else [Case(labels[peer], peer, plain) for peer in setting.some((peers.EXT4, peers.FORCE3))]
    return [case for case in others if case.peer != peers.SHALE] + [Case(labels[peers.SHALE], peers.SHALE, settled)]


def tables(setting):
    """Figures without spread: sizes, frames and bytes that are read."""
    result = [] if setting.smoke else [sizes(setting)]
    with setting.place(peers.SHALE) as place:
        result += [reads(setting, place), parts(setting, place)]
    with setting.place(peers.SHALE) as place:
        return result + [chunks(setting, place)]


def sizes(setting):
    """Debian's ferret-datasets, as written and settled, beside btrfs and nccopy."""
    corpus = sorted(
        path
        for path in glob.glob(setting.ferret() + "/*")
        if path.endswith((".cdf", ".nc")) and os.path.getsize(path) > 200_000
    )
    written, settled, states, btrfs, deflated = {}, {}, {}, {}, {}
    with setting.place(peers.SHALE) as place:
        here = {path: place.at(os.path.basename(path)) for path in corpus}
        for path, copy in here.items():
            shutil.copy(path, copy)
            files.sync(copy)
            written[path] = place.stored(copy)
        run(place.peer.binary, "settle", "--wait", place.path)
        for path, copy in here.items():
            settled[path] = place.stored(copy)
            states[path] = os.getxattr(copy, "user.shale.stat.state").decode()
            with open(path, "rb") as file:
                files.compare(copy, memoryview(file.read()))
    if peers.FORCE3 in setting.peers:
        with setting.place(peers.FORCE3) as place:
            for path in corpus:
                shutil.copy(path, place.path)
                btrfs[path] = place.stored(place.at(os.path.basename(path)))
    for path in corpus:
        copy = os.path.join(setting.scratch, "deflated.nc")
        run("nccopy", "-d5", "-s", path, copy)
        deflated[path] = os.path.getsize(copy)
        os.unlink(copy)
    rows = [
        [
            os.path.basename(path), f"{os.path.getsize(path):,}", f"{written[path]:,}", f"{settled[path]:,}",
            f"{btrfs[path]:,}" if path in btrfs else "", f"{deflated[path]:,}",
            f"{btrfs[path] / settled[path]:.2f}" if path in btrfs else "",
        ]
        for path in corpus
    ]  # fmt: skip
    pending = [os.path.basename(path) for path in corpus if states[path] not in ("settled", "compact", "incompressible")]
    larger = [os.path.basename(path) for path in corpus if settled[path] >= deflated[path]]
    figures = {"larger_than_nccopy": len(larger)}
    note = f"Not smaller than nccopy -d5 -s: {', '.join(larger) or 'none'}."
    if pending:
        note += f" Still not settled when `shale settle --wait` had returned: {', '.join(pending)}."
    if btrfs:
        figures["btrfs_by_settled"] = geometric_mean([btrfs[path] / settled[path] for path in corpus])
        note = f"Geometric mean of btrfs / settled: {figures['btrfs_by_settled']:.2f}. " + note
    header = ["file", "raw", "as written", "settled", "btrfs compress-force=zstd:3", "nccopy -d5 -s", "btrfs / settled"]
    return {"title": "Stored bytes of ferret-datasets", "header": header, "rows": rows, "note": note, "figures": figures}


def index_bytes(place):
    names = [*peers.files(place.under + "/store/index"), *peers.files(place.under + "/store/packs/catalog")]
    return sum(os.path.getsize(name) for name in names)


def reads(setting, place):
    """Frames for a header, and the cost of the index."""
    empty, values, path = index_bytes(place), data.smooth(*shape(setting)), place.at("levels.nc")
    write(path, values)
    run(place.peer.binary, "settle", "--wait", path)
    stored, index = place.stored(path), index_bytes(place) - empty
    place.remount()
    before = place.peer.ask(place.path, "frames_read")
    run("ncdump", "-h", path)
    frames = place.peer.ask(place.path, "frames_read") - before
    rows = [
        ["frames read by `ncdump -h`", str(frames)],
        ["stored bytes", f"{stored:,}"],
        ["index, beyond that of an empty store", f"{index:,} bytes, {100 * index / stored:.3f} % of the stored bytes"],
    ]
    figures = {"header_frames": frames, "index_share": index / stored}
    return {"title": "The header and the index", "header": ["", ""], "rows": rows, "note": "", "figures": figures}


def parts(setting, place):
    """Stored bytes that reading a slice fetches, with and without the page cache's read-ahead."""
    path, rows, worst = place.at("levels.nc"), [], 0
    stored, elements = place.stored(path), np.prod(shape(setting))
    # Well past the megabytes that are read when the file is opened.
    at = {"t": shape(setting)[0] * 2 // 3, "z": 3, "y": 90, "x": 180, ":": slice(None)}
    for name in SLICES[: setting.amount(6, 6, 1)]:
        index = tuple(at[letter] for letter in name[1:-1].split(", "))
        fetched = []
        for options in (place.peer.options + ",direct_io", place.peer.options):
            place.peer.unmount_store(place)
            place.peer.mount_store(place, options)

            def read(ready):
                import netCDF4

                with netCDF4.Dataset(path) as file:
                    # Opening reads the first megabytes, whatever the file system.
                    before = place.peer.ask(place.path, "bytes_read")
                    piece = file["temperature"][index]
                return piece.size, place.peer.ask(place.path, "bytes_read") - before

            count, amount = in_child(read)
            fetched.append(amount)
        tiles, amount = fetched
        if tiles:
            worst = max(worst, amount / tiles)
        rows.append(
            [
                name,
                f"{100 * count / elements:.3f} %",
                f"{100 * tiles / stored:.1f} %",
                f"{100 * amount / stored:.1f} %",
                f"{amount / tiles:.2f}" if tiles else "",
            ]
        )
    header = ["slice", "of the elements", "tiles, of the stored bytes", "read, of the stored bytes", "read / tiles"]
    note = "The share of the tiles is what a mount without page cache reads: no more than asked for."
    return {"title": "Slices of a settled file", "header": header, "rows": rows, "note": note, "figures": {"slice_excess": worst}}


def chunks(setting, place):
    """An array as Zarr stores it, every chunk a small file: how many settle in a second."""
    count, rows, figures = setting.amount(2000, 2000, 50), [], {}
    for side in (64, 128):
        values = np.round(data.smooth(1, count, side, side)[0], 2)
        directory = place.at(f"{side}.zarr")
        os.mkdir(directory)
        names = [os.path.join(directory, f"{number}.0.0") for number in range(count)]
        for name, chunk in zip(names, values):
            chunk.tofile(name)
        for name in names:
            files.sync(name)
        before = place.stored(directory)
        with span() as took:
            run(place.peer.binary, "settle", "--wait", directory)
        after = place.stored(directory)
        for name, chunk in zip(names, values):
            files.compare(name, files.raw(np.ascontiguousarray(chunk)))
        rows.append(
            [
                f"{count:,} of {side * side * 4 >> 10} KiB", f"{count / took.seconds:,.0f}", f"{took.cpu:.2f} s",
                f"{values.nbytes / before:.2f}", f"{values.nbytes / after:.2f}",
            ]
        )  # fmt: skip
        figures[f"chunks_{side}"] = count / took.seconds
    header = ["chunks", "files per second", "CPU, whole machine", "raw / stored, as written", "raw / stored, settled"]
    return {"title": "Small files, as Zarr has them", "header": header, "rows": rows, "note": "", "figures": figures}
