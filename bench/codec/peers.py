#!/usr/bin/env python3
"""Measures other codecs on the sets of a manifest, one core, 1 MiB chunks.

usage: peers.py MANIFEST [SECONDS_PER_FIGURE] [ONLY]

Prints the same lines as the `measure` example of the codec crate. Every peer
gets what it can use: the element type where it takes one, and fpzip the shape
(cut into runs of whole planes of about a chunk).
"""
import os
import statistics
import sys
import time

import bitshuffle
import blosc2
import fpzip
import numpy as np
from pcodec import ChunkConfig, standalone

CHUNK = 1 << 20
manifest = sys.argv[1]
budget = float(sys.argv[2]) if len(sys.argv) > 2 else 0.4
only = sys.argv[3] if len(sys.argv) > 3 else ""
blosc2.set_nthreads(1)


def speed(size, work):
    work()
    begin = time.perf_counter()
    times = []
    while len(times) < 3 or (time.perf_counter() - begin < budget and len(times) < 200):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    # As the `measure` example does.
    pick = min if "BEST" in os.environ else statistics.median
    return size / 1e6 / pick(times)


def blosc(filters, level):
    def encode(part):
        return blosc2.compress2(
            part, typesize=part.dtype.itemsize, codec=blosc2.Codec.ZSTD, clevel=level,
            filters=filters, filters_meta=[0] * len(filters), nthreads=1)

    return encode, lambda coded, part: blosc2.decompress2(coded, nthreads=1)


def pco(level):
    def native(part):
        part = part.astype(part.dtype.newbyteorder("="))
        return part.view(np.uint16) if part.dtype.itemsize == 1 and len(part) % 2 == 0 else part

    def encode(part):
        return standalone.simple_compress(native(part).ravel(), ChunkConfig(compression_level=level))

    return encode, lambda coded, part: standalone.simple_decompress(coded)


def bit_lz4(part):
    return bitshuffle.compress_lz4(part)


def fp_encode(part):
    return fpzip.compress(np.ascontiguousarray(part.astype(part.dtype.newbyteorder("="))), precision=0, order="C")


for line in open(manifest):
    name, group, kind, width, order, shape, file = line.split()
    if only not in name:
        continue
    width = int(width)
    shape = [int(n) for n in shape.split("x")]
    code = {"float": "f", "int": "i", "uint": "u", "opaque": "V"}[kind]
    dtype = np.dtype((">" if order == "big" else "<") + f"{code}{width}" if code != "V" else f"V{width}")
    raw = np.fromfile(os.path.join(os.path.dirname(manifest), file), np.uint8)[: 8 << 20]
    raw = raw[: len(raw) // width * width]
    typed = raw.view(dtype)
    if code == "V":
        typed = raw.view("<f4")
    per = CHUNK // typed.dtype.itemsize
    parts = [typed[i : i + per] for i in range(0, len(typed), per)]
    peers = {
        "blosc2 shuffle+zstd1": (*blosc([blosc2.Filter.SHUFFLE], 1), parts),
        "blosc2 bytedelta+zstd5": (*blosc([blosc2.Filter.SHUFFLE, blosc2.Filter.BYTEDELTA], 5), parts),
        "bitshuffle+lz4": (bit_lz4, lambda coded, part: bitshuffle.decompress_lz4(coded, part.shape, part.dtype), parts),
        "pco-8": (*pco(8), parts),
    }
    if kind == "float":
        inner = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        rows = max(1, min(shape[0], per // inner))
        shaped = typed[: len(typed) // inner * inner].reshape(-1, *shape[1:])
        if len(shape) == 4 and inner > per:
            shaped = shaped.reshape(-1, *shape[2:])
            rows = max(1, per // int(np.prod(shape[2:])))
        elif shaped.ndim > 4:
            shaped = shaped.reshape(-1, *shape[-3:])
        blocks = [shaped[i : i + rows] for i in range(0, len(shaped), rows)]
        peers["fpzip"] = (fp_encode, lambda coded, part: fpzip.decompress(coded, order="C"), blocks)
    target = np.empty_like(raw)

    def copy():
        for i in range(0, len(raw), CHUNK):
            target[i : i + CHUNK] = raw[i : i + CHUNK]

    for label, (encode, decode, pieces) in peers.items():
        try:
            copying = speed(len(raw), copy)
            coded = [encode(piece) for piece in pieces]
            stored = sum(min(len(c), p.nbytes) for c, p in zip(coded, pieces))
            size = sum(p.nbytes for p in pieces)
            into = speed(size, lambda: [encode(piece) for piece in pieces])
            out = speed(size, lambda: [decode(c, p) for c, p in zip(coded, pieces)])
            print(f"{name}\t{group}\t{label}\t{size / stored:.4f}\t{into:.0f}\t{out:.0f}\t{copying:.0f}\t-", flush=True)
        except Exception as error:  # a peer that cannot take a set is a fact to report
            print(f"{name}\t{group}\t{label}\t1.0\t0\t0\t0\trefused: {error}", flush=True)
