"""Checks that need several processes: sharing.py TEST PATH; says "checked" at the end."""
import fcntl
import mmap
import multiprocessing
import os
import struct
import sys


def check(condition, what):
    if not condition:
        sys.exit(f"sharing.py: {what}")


def mapping_peer(path, pipe):
    """Answers through the mapping to what it sees in the mapping."""
    with open(path, "r+b") as file:
        view = mmap.mmap(file.fileno(), 0)
        while True:
            message = pipe.recv()
            if message is None:
                break
            offset, value = message
            seen = struct.unpack_from("<Q", view, offset)[0]
            struct.pack_into("<Q", view, offset + 8, seen + 1)
            pipe.send(seen == value)
        view.flush()
        view.close()


def mapping(path):
    size = 3 * 1024 * 1024 + 100
    with open(path, "wb") as file:
        file.truncate(size)
    ours, theirs = multiprocessing.Pipe()
    peer = multiprocessing.Process(target=mapping_peer, args=(path, theirs))
    peer.start()
    with open(path, "r+b") as file:
        view = mmap.mmap(file.fileno(), 0)
        for step in range(2000):
            offset = (step * 7919 * 16) % (size - 16) // 8 * 8
            struct.pack_into("<Q", view, offset, step)
            ours.send((offset, step))
            check(ours.recv(), f"the other process does not see step {step}")
            check(struct.unpack_from("<Q", view, offset + 8)[0] == step + 1, f"no answer in step {step}")
            # read() and pwrite() share the pages with the mapping.
            check(os.pread(file.fileno(), 8, offset + 8) == struct.pack("<Q", step + 1), "read() is stale")
            os.pwrite(file.fileno(), struct.pack("<Q", step + 5), offset + 8)
            check(struct.unpack_from("<Q", view, offset + 8)[0] == step + 5, "the mapping is stale")
        ours.send(None)
        peer.join()
        check(peer.exitcode == 0, "the other process failed")
        whole = bytes(view)
        view.flush()
        view.close()
    with open(path, "rb") as file:
        check(file.read() == whole, "a fresh read differs from the mapping")
    private = os.open(path, os.O_RDONLY)
    view = mmap.mmap(private, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    view[0:4] = b"mine"
    check(os.pread(private, 4, 0) == whole[:4], "a private mapping leaks into the file")


def lock_peer(path, pipe):
    """Takes and releases locks on request."""
    file = open(path, "r+b")
    while True:
        message = pipe.recv()
        if message is None:
            break
        kind, start, length = message
        try:
            fcntl.lockf(file, kind, length, start)
            pipe.send(True)
        except OSError:
            pipe.send(False)


def fcntl_locks(path):
    shared, exclusive, now, off = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN
    ours, theirs = multiprocessing.Pipe()
    peer = multiprocessing.Process(target=lock_peer, args=(path, theirs))
    peer.start()

    def ask(kind, start, length):
        ours.send((kind, start, length))
        return ours.recv()

    with open(path, "r+b") as file:
        check(ask(exclusive | now, 0, 100), "the first lock is refused")
        try:
            fcntl.lockf(file, exclusive | now, 10, 95)
            check(False, "an overlapping lock is granted")
        except OSError:
            pass
        try:
            fcntl.lockf(file, shared | now, 1, 0)
            check(False, "a shared lock is granted against an exclusive one")
        except OSError:
            pass
        fcntl.lockf(file, exclusive | now, 100, 100)
        check(not ask(exclusive | now, 150, 1), "a lock held here is granted there")
        query = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, query))
        check(answer[0] == fcntl.F_WRLCK and answer[4] == peer.pid, f"F_GETLK names {answer}, not {peer.pid}")
        check(ask(off, 40, 20), "unlocking the middle is refused")
        fcntl.lockf(file, exclusive | now, 20, 40)
        check(ask(shared | now, 0, 40), "a lock cannot be weakened")
        fcntl.lockf(file, shared | now, 40, 0)
        # A blocking request is granted when the holder releases the lock.
        ours.send((exclusive, 100, 100))
        fcntl.lockf(file, off, 100, 100)
        check(ours.recv(), "a blocking lock is not granted")
        try:
            fcntl.lockf(file, exclusive | now, 1, 100)
            check(False, "the lock did not go over")
        except OSError:
            pass
    ours.send(None)
    peer.join()
    check(peer.exitcode == 0, "the other process failed")
    with open(path, "r+b") as file:
        fcntl.lockf(file, exclusive | now)


def content(index):
    return bytes([index % 251]) * 5000 + struct.pack("<Q", index)


def handles(path):
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
    files, views = [], []
    for index in range(2000):
        file = open(os.path.join(path, f"{index:04}"), "w+b")
        file.truncate(5008)
        views.append(mmap.mmap(file.fileno(), 5008))
        files.append(file)
    for index, view in enumerate(views):
        view[:] = content(index)
    for index, file in enumerate(files):
        check(os.pread(file.fileno(), 6000, 0) == content(index), f"handle {index} reads something else")
        check(os.fstat(file.fileno()).st_size == 5008, f"handle {index} has another size")
    for view, file in zip(views, files):
        view.close()
        file.close()


def handles_again(path):
    check(len(os.listdir(path)) == 2000, "files are missing")
    for index in range(2000):
        with open(os.path.join(path, f"{index:04}"), "rb") as file:
            check(file.read() == content(index), f"file {index} differs")


tests = {"mapping": mapping, "fcntl": fcntl_locks, "handles": handles, "handles-again": handles_again}
if __name__ == "__main__":
    tests[sys.argv[1]](sys.argv[2])
    print("checked")
