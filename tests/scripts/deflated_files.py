"""The same NetCDF-4 file twice, with variables that netCDF has deflated and without: deflated_files.py DIR"""
import os
import sys

import netCDF4
import numpy as np

SHAPE = (40, 6, 90, 180)


def fields():
    rng = np.random.default_rng(1)
    t, z, y, x = (np.linspace(0, 3 + 2 * axis, n, dtype="f4") for axis, n in enumerate(SHAPE))
    wave = np.sin(t)[:, None, None, None] + np.cos(z)[:, None, None] + np.sin(y)[:, None] * np.cos(x)
    noise = rng.standard_normal(SHAPE, dtype="f4")
    # Deflated with shuffle; with a checksum as well and other elements; without shuffle; not at all.
    return {
        "ta": ((280 + 9 * wave + 0.02 * noise).astype("f4"), {"zlib": True, "shuffle": True, "complevel": 4}),
        "hus": ((3000 * wave + 5 * noise).astype("i2"), {"zlib": True, "shuffle": True, "complevel": 4, "fletcher32": True}),
        "ps": ((1e5 + 900 * wave[:, 0] + noise[:, 0]).astype("f8"), {"zlib": True, "shuffle": False, "complevel": 1}),
        "ua": ((9 * wave + 0.1 * noise).astype("f4"), {}),
    }


def write(path, deflate):
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip("tzyx", SHAPE):
            file.createDimension(name, length)
        for name, (values, options) in fields().items():
            names = "tzyx" if values.ndim == 4 else "tyx"
            chunks = [4, *values.shape[1:-2], 45, 90]
            options = options if deflate else {}
            file.createVariable(name, values.dtype, tuple(names), chunksizes=chunks, **options)[:] = values


for name, deflate in ("deflated", True), ("plain", False):
    os.mkdir(os.path.join(sys.argv[1], name))
    write(os.path.join(sys.argv[1], name, "fields.nc"), deflate)
