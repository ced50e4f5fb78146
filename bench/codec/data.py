#!/usr/bin/env python3
"""Writes the benchmark's data sets and a manifest of them.

usage: data.py FERRET_DATA_DIR OUT_DIR

Real sets: the float variables of Debian's ferret-datasets that are at least
200 KiB, byte for byte as they lie in the files (big-endian). Generated sets:
turbulence, a particle list, AMR blocks with fill, packed reanalysis-like
fields, and chunks of which 100, 50 and 10 % is random.

The manifest has one line per set: name, class, kind and width, byte order,
shape, file.
"""
import glob
import os
import sys

import netCDF4
import numpy as np

source, target = sys.argv[1:3]
os.makedirs(target, exist_ok=True)
manifest = []
rng = np.random.default_rng(20260101)


def put(name, group, array, order):
    array = np.ascontiguousarray(array)
    kind = {"f": "float", "i": "int", "u": "uint", "V": "opaque"}[array.dtype.kind]
    path = name + ".bin"
    array.tofile(os.path.join(target, path))
    shape = "x".join(map(str, array.shape))
    manifest.append(f"{name} {group} {kind} {array.dtype.itemsize} {order} {shape} {path}")


def turbulence(shape, exponent=-5 / 3):
    """A periodic random field whose energy spectrum falls as k^exponent."""
    axes = [np.fft.fftfreq(n) * n for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1]) * shape[-1]]
    k = np.sqrt(sum(a**2 for a in np.meshgrid(*axes, indexing="ij")))
    k[(0,) * len(shape)] = np.inf
    amplitude = np.sqrt(k**exponent / k ** (len(shape) - 1))
    noise = rng.standard_normal(k.shape) + 1j * rng.standard_normal(k.shape)
    field = np.fft.irfftn(noise * amplitude, shape, axes=range(len(shape)))
    return field / field.std()


for path in sorted(glob.glob(os.path.join(source, "*"))):
    if not path.endswith((".nc", ".cdf")):
        continue
    data = netCDF4.Dataset(path)
    data.set_auto_maskandscale(False)
    stem = os.path.basename(path).split(".")[0]
    for name, variable in data.variables.items():
        if variable.dtype.kind != "f":
            continue
        array = variable[:]
        if array.nbytes < 200 << 10:
            continue
        put(f"{stem}.{name}", "real", array.astype(">f%d" % array.dtype.itemsize), "big")

# A wind of 20 with fluctuations of 1, and the harder case without a mean wind.
field = turbulence((2048, 1024)) + 20
put("turbulence-f32", "made", field.astype("<f4"), "little")
put("turbulence-f64", "made", field.astype("<f8"), "little")
put("turbulence-3d-f32", "made", (turbulence((128, 128, 128)) * 3 + 1).astype("<f4"), "little")

particles = np.zeros(200_000, dtype=[("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("v", "<f4", 3)])
cell = np.sort(rng.integers(0, 4096, len(particles)))
for i, axis in enumerate("xyz"):
    particles[axis] = (cell >> (4 * i)) % 16 + rng.random(len(particles))
particles["v"] = rng.standard_normal((len(particles), 3)) * 200
put("particles", "made", particles.view("V24"), "little")

blocks = np.full((256, 16, 16, 16), np.float32(9.96921e36))
coarse = turbulence((64, 64, 64))
for b in range(256):
    if rng.random() < 0.6:
        z, y, x = rng.integers(0, 48, 3)
        blocks[b] = coarse[z : z + 16, y : y + 16, x : x + 16] * 1e5
put("amr-fill", "made", blocks.astype("<f4"), "little")

height = np.stack([turbulence((181, 360), -3) for _ in range(24)])
height = np.cumsum(height * 0.2, axis=0) + turbulence((181, 360), -3) * 3
put("packed-z", "made", np.round(height * 2500).clip(-32767, 32767).astype(">i2"), "big")
wind = np.stack([turbulence((181, 360), -2) for _ in range(24)])
put("packed-u", "made", np.round(wind * 8000).clip(-32767, 32767).astype(">i2"), "big")

for share in (100, 50, 10):
    size = 4 << 20
    chunk = np.zeros(size, dtype=np.uint8)
    picks = rng.random(size // 4096) < share / 100
    chunk.reshape(-1, 4096)[picks] = rng.integers(0, 256, (picks.sum(), 4096), dtype=np.uint8)
    put(f"random-{share}", "made", chunk, "little")

with open(os.path.join(target, "manifest"), "w") as out:
    out.write("\n".join(manifest) + "\n")
