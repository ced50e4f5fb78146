"""The table of README.md, from a full run."""
from bench import peers, render
from bench.targets import Results


def named(results, bench, title):
    """The rows of a table without spread."""
    tables = results.run["benches"].get(bench, {}).get("tables", [])
    return next((table["rows"] for table in tables if table["title"] == title), [])


def whole(text):
    return int(text.replace(",", ""))


def sizes(results):
    rows = [row for row in named(results, "settle", "Stored bytes of ferret-datasets") if row[4]]
    if not rows:
        return None
    raw, _, settled, btrfs, deflated = (sum(whole(row[column]) for row in rows) for column in range(1, 6))
    larger = sum(whole(row[3]) > min(whole(row[4]), whole(row[5])) for row in rows)
    verdict = f"{larger} of them larger than with one of these" if larger else "no file is larger than with either"
    return (
        f"{len(rows)} NetCDF files of climatologies ({raw / 1e6:.0f} MB, Debian's ferret-datasets), settled",
        f"{settled / 1e6:.1f} MB, {raw / settled:.1f} times smaller",
        f"btrfs zstd:3 {btrfs / 1e6:.1f} MB; `nccopy -d5 -s` {deflated / 1e6:.1f} MB; {verdict}",
    )


def slices(results):
    shares = [float(row[3].rstrip(" %")) for row in named(results, "settle", "Slices of a settled file")]
    if not shares:
        return None
    share = f"{render.number(min(shares))} to {render.number(max(shares))} %"
    return "a 2-D slice of a settled 4-D variable", f"reads {share} of the stored bytes", ""


def header(results):
    frames = results.figure("settle", "header_frames")
    if frames is None:
        return None
    return "`ncdump -h` of a settled file", "reads one frame" if frames == 1 else f"reads {frames} frames", ""


def medians(results, bench, device, key, metrics, variant=""):
    samples = [results.sample(bench, device, key, metric, variant) for metric in metrics]
    return " / ".join(f"{sample.median:,.0f}" for sample in samples) if all(samples) else None


def small_writes(results):
    mine, theirs = (medians(results, "small", "free", key, ("close", "durable")) for key in (peers.SHALE, peers.EXT4))
    if not mine or not theirs:
        return None
    return "writing in 8 KiB pieces until `close` / until durable", f"{mine} MB/s", f"ext4 {theirs} MB/s"


def large_writes(results):
    keys = (peers.SHALE, peers.EXT4, peers.FORCE3)
    mine, ext4, btrfs = (medians(results, "stream", "throttled", key, ("durable",)) for key in keys)
    if not mine or not ext4 or not btrfs:
        return None
    what = "writing in 1 MiB pieces until durable, device of 200 MB/s"
    return what, f"{mine} MB/s", f"ext4 {ext4}, btrfs zstd:3 {btrfs} MB/s"


def creates(results):
    for variant in results.variants("files", "free"):
        mine, theirs = (medians(results, "files", "free", key, ("create",), variant) for key in (peers.SHALE, peers.EXT4))
        if mine and theirs:
            return "creating files", f"{mine} per second", f"ext4 {theirs}"
    return None


def settling(results):
    rate = results.figure("settle", "chunks_128")
    if rate is None:
        return None
    return "settling files of 64 KiB", f"{rate:,.0f} per second", ""


ROWS = (sizes, slices, header, small_writes, large_writes, creates, settling)


def section(run):
    """The text between the markers."""
    results = Results(run)
    rows = [list(row) for row in (make(results) for make in ROWS) if row]
    text = (
        f"The run of `make bench` on {run['date']}: {run['machine']['cores']} cores, a virtual disk, medians of "
        f"{run['repetitions']}. [docs/performance.md](docs/performance.md) has the conditions and more, losses included."
    )
    return f"{text}\n\n{render.table(['', 'ShaleFS', 'others'], rows)}\n"

