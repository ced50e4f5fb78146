"""A writer and two readers on one SQLite database in WAL mode: sqlite_wal.py DIRECTORY"""
import multiprocessing
import os
import random
import sqlite3
import sys

ACCOUNTS, TOTAL, TRANSFERS = 100, 100_000, 400


def connect(path):
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        sys.exit(f"journal mode is {mode}, not wal")
    return connection


def reader(path, finished, pipe):
    connection = connect(path)
    last, looks = 0, 0
    while True:
        over = finished.is_set()
        connection.execute("BEGIN")
        total = connection.execute("SELECT sum(balance) FROM accounts").fetchone()[0]
        count = connection.execute("SELECT count(*) FROM transfers").fetchone()[0]
        connection.execute("COMMIT")
        if total != TOTAL or count < last:
            pipe.send(f"sum {total}, {count} transfers after {last}")
            return
        last, looks = count, looks + 1
        if over:
            break
    pipe.send(None if last == TRANSFERS else f"{last} of {TRANSFERS} transfers seen at the end")


def main(directory):
    multiprocessing.set_start_method("spawn")
    path = os.path.join(directory, "bank.db")
    connection = connect(path)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance INTEGER)")
    connection.execute("CREATE TABLE transfers(id INTEGER PRIMARY KEY, source, target, amount, remark)")
    connection.executemany("INSERT INTO accounts VALUES(?, ?)", [(i, TOTAL // ACCOUNTS) for i in range(ACCOUNTS)])
    finished = multiprocessing.Event()
    readers = []
    for _ in range(2):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=reader, args=(path, finished, theirs))
        process.start()
        readers.append((process, ours))
    rng = random.Random(5)
    for number in range(TRANSFERS):
        source, target, amount = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randrange(50)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE accounts SET balance = balance - ? WHERE id = ?", (amount, source))
        connection.execute("UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, target))
        remark = "".join(rng.choices("abcdefgh", k=rng.randrange(2000)))
        connection.execute("INSERT INTO transfers VALUES(?, ?, ?, ?, ?)", (number, source, target, amount, remark))
        connection.execute("COMMIT")
    finished.set()
    for process, pipe in readers:
        if not pipe.poll(60):
            sys.exit("a reader did not end")
        complaint = pipe.recv()
        process.join()
        if complaint:
            sys.exit(f"reader: {complaint}")
    print(connection.execute("PRAGMA integrity_check").fetchone()[0])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
