"""h5py: create, append, resize, and a reader beside a writer (SWMR): hdf5_files.py DIRECTORY"""
import hashlib
import json
import multiprocessing
import os
import sys
import time

import h5py
import numpy as np

STEPS = 60


def digest(values):
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def create_append_resize(path):
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as f:
        f.attrs["title"] = "a file that grows"
        f["fixed"] = np.arange(200_000, dtype="f8").reshape(400, 500)
        f.create_dataset("grows", (0, 64), maxshape=(None, 64), chunks=(128, 64), dtype="f4")
        f.create_dataset("packed", (0,), maxshape=(None,), chunks=(4096,), dtype="i4", compression="gzip", shuffle=True)
        f.create_dataset("words", data=[f"word {i}" for i in range(500)], dtype=h5py.string_dtype())
        f.create_group("deep/er/still").attrs["level"] = 3
    for part in range(5):
        with h5py.File(path, "a") as f:
            grows, packed = f["grows"], f["packed"]
            grows.resize(grows.shape[0] + 300, axis=0)
            grows[-300:] = rng.normal(size=(300, 64))
            packed.resize(packed.shape[0] + 10_000, axis=0)
            packed[-10_000:] = np.arange(10_000) * part
            f["fixed"][part * 10 : part * 10 + 5] = -part
            f[f"deep/er/part-{part}"] = rng.integers(0, 100, 1000)
    with h5py.File(path, "a") as f:
        f["grows"].resize((700, 64))
        f["grows"].resize((900, 64))
        f["packed"].resize((12_345,))
        del f["deep/er/part-2"]
        f.flush()
    found = {}
    with h5py.File(path, "r") as f:
        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                values = item[()]
                if values.dtype == object:
                    found[name] = [list(item.shape), digest(np.array(b"\0".join(values)))]
                else:
                    found[name] = [str(item.dtype), list(item.shape), digest(values), digest(item[5::3])]
        f.visititems(visit)
        assert np.all(f["grows"][700:] == 0), "what was cut off came back"
    return found


def swmr_reader(path, ready, finished, pipe):
    """Sees only complete, correct steps, never fewer than before."""
    with h5py.File(path, "r", libver="latest", swmr=True) as f:
        data = f["steps"]
        ready.set()
        seen, looks = 0, 0
        while seen < STEPS:
            over = finished.is_set()
            data.refresh()
            count = data.shape[0]
            if count < seen:
                pipe.send(f"{count} steps after {seen}")
                return
            if count > seen:
                block = data[seen:count]
                expected = np.arange(seen, count, dtype="i8")[:, None] * 1000 + np.arange(100)
                if not np.array_equal(block, expected):
                    pipe.send(f"wrong values between step {seen} and {count}")
                    return
                seen = count
            elif over:
                pipe.send(f"the writer has finished {STEPS} steps, the reader sees {seen}")
                return
            looks += 1
            time.sleep(0.001)
    pipe.send(None)


def swmr(path):
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("steps", (0, 100), maxshape=(None, 100), chunks=(4, 100), dtype="i8")
    ready, finished = multiprocessing.Event(), multiprocessing.Event()
    ours, theirs = multiprocessing.Pipe()
    with h5py.File(path, "a", libver="latest") as f:
        f.swmr_mode = True
        data = f["steps"]
        reader = multiprocessing.Process(target=swmr_reader, args=(path, ready, finished, theirs))
        reader.start()
        if not ready.wait(60):
            sys.exit("the reader could not open the file")
        for step in range(STEPS):
            data.resize(step + 1, axis=0)
            data[step] = step * 1000 + np.arange(100)
            data.flush()
        finished.set()
        if not ours.poll(60):
            sys.exit("the reader did not end")
        complaint = ours.recv()
        reader.join()
        if complaint:
            sys.exit(f"SWMR: {complaint}")
    with h5py.File(path, "r") as f:
        return digest(f["steps"][()])


def main(directory):
    multiprocessing.set_start_method("spawn")
    result = {
        "grown.h5": create_append_resize(os.path.join(directory, "grown.h5")),
        "swmr.h5": swmr(os.path.join(directory, "swmr.h5")),
    }
    print(json.dumps(result, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
