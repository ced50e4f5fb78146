"""A made-up run, small enough to check by hand."""


def row(peer, label=None, **figures):
    return {"label": label or peer, "peer": peer, "figures": figures}


def run():
    stream = {
        "ext4": row("ext4", close=[900, 1000, 1100], durable=[400, 500, 450], cold=[200, 210, 190], cpu=[1.0, 1.0, 1.0]),
        "btrfs-zstd1": row("btrfs-zstd1", close=[1200, 1250, 1300]),
        "btrfs-force-zstd1": row("btrfs-force-zstd1", close=[500, 500, 500], durable=[300, 310, 290]),
        "btrfs-force-zstd3": row("btrfs-force-zstd3", durable=[290, 280, 300], cold=[400, 400, 400], cpu=[4.0, 4.0, 4.0]),
        "shale": row("shale", "ShaleFS", close=[800, 850, 700], durable=[500, 600, 450], cold=[300, 320, 340], cpu=[2.0, 3.0, 2.5]),
    }
    stream["shale"]["peak"] = 300 << 20
    stream["shale"]["daemon_cpu"] = [1.5, 1.6, 1.4]
    files = {
        "2000 files": {
            "bindfs": row("bindfs", create=[5000], delete=[6000]),
            "shale": row("shale", "ShaleFS", create=[6000], delete=[3000]),
        }
    }
    hdf5 = {
        "ext4 chunked": row("ext4", durable=[400], ratio=[1.0]),
        "shale contiguous": row("shale", "ShaleFS, contiguous", durable=[300], ratio=[1.7]),
        "shale chunked": row("shale", "ShaleFS, chunked", durable=[200], ratio=[1.6]),
        "app one": row("ext4", "one", durable=[150], ratio=[1.5]),
        "app two": row("ext4", "two", durable=[100], ratio=[1.8]),
    }
    benches = {
        "stream": {"devices": {"free": {"": stream}}, "tables": [], "absent": {}, "seconds": 1.0},
        "files": {"devices": {"free": files}, "tables": [], "absent": {}, "seconds": 1.0},
        "hdf5": {"devices": {"throttled": {"": hdf5}}, "tables": [], "absent": {"ADIOS2": "no Blosc"}, "seconds": 1.0},
        "settle": {
            "devices": {},
            "tables": [
                {"title": "Sizes", "header": ["file", "raw"], "rows": [["a.nc", "10"]], "note": "All of them.",
                 "figures": {"larger_than_nccopy": 0, "index_share": 0.003}}
            ],
            "absent": {},
            "seconds": 1.0,
        },
    }  # fmt: skip
    return {
        "date": "2026-01-01",
        "scale": "quick",
        "whole": True,
        "repetitions": 3,
        "seconds": 180.0,
        "machine": {
            "kernel": "6.1", "cores": 2, "memory": 8 << 30, "budget": 2 << 30, "load": 0.1, "shale": "shale 0.1", "direct_loop": True,
        },
        "throttle": {"fault": "no such file"},
        "python": {"python": 2000.0, "dd": 2100.0},
        "absent": {"bindfs on ext4": "not installed"},
        "benches": benches,
    }  # fmt: skip
