"""Writes NetCDF files the way models do, reads them back, prints what it read: netcdf_files.py DIRECTORY"""
import hashlib
import json
import os
import sys

import netCDF4
import numpy as np

FORMATS = {
    "classic.nc": ("NETCDF3_CLASSIC", {}),
    "cdf2.nc": ("NETCDF3_64BIT_OFFSET", {}),
    "cdf5.nc": ("NETCDF3_64BIT_DATA", {}),
    "nc4-contiguous.nc": ("NETCDF4", {"contiguous": True}),
    "nc4-deflated.nc": ("NETCDF4", {"zlib": True, "complevel": 4, "shuffle": True}),
}


def field(step, shape=(90, 180)):
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]]
    wave = np.sin(x / 9 + step / 3) * np.cos(y / 7) * 12 + 280
    noise = np.random.default_rng(step).normal(0, 0.05, shape)
    return (wave + noise).astype("f4")


def create(path, kind, storage):
    fixed = storage.get("contiguous", False)
    with netCDF4.Dataset(path, "w", format=kind) as nc:
        nc.title = "simulated fields"
        # A contiguous variable cannot grow.
        nc.createDimension("time", 12 if fixed else None)
        nc.createDimension("lat", 90)
        nc.createDimension("lon", 180)
        time = nc.createVariable("time", "f8", ("time",), **storage)
        time.units = "hours since 2000-01-01"
        lat = nc.createVariable("lat", "f4", ("lat",))
        lat[:] = np.linspace(-89, 89, 90)
        t = nc.createVariable("t", "f4", ("time", "lat", "lon"), fill_value=-9e9, **storage)
        t.units = "K"
        flag = nc.createVariable("flag", "i2", ("time", "lat"), **storage)
        for step in range(8):
            time[step] = step * 6.0
            t[step] = field(step)
            flag[step] = np.arange(90, dtype="i2") * step
            if step % 3 == 0:
                nc.sync()


def extend(path):
    """Opens again, adds records, defines something new, and changes a value in place."""
    with netCDF4.Dataset(path, "a") as nc:
        for step in range(8, 12):
            nc["time"][step] = step * 6.0
            nc["t"][step] = field(step)
            nc["flag"][step] = np.arange(90, dtype="i2") * step
        nc["t"][3, 10:20, 30:40] = 1.5
        nc.history = "extended " * 50
        late = nc.createVariable("late", "i4", ("lat",))
        late[:] = np.arange(90) ** 2


def describe(path):
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_mask(False)
        return {
            "format": nc.data_model,
            "attributes": {name: str(nc.getncattr(name)) for name in nc.ncattrs()},
            "variables": {
                name: [
                    str(v.dtype),
                    list(v.shape),
                    hashlib.sha256(np.ascontiguousarray(v[:]).tobytes()).hexdigest(),
                    hashlib.sha256(np.ascontiguousarray(v[..., ::-3]).tobytes()).hexdigest(),
                ]
                for name, v in nc.variables.items()
            },
        }


def main(directory):
    result = {}
    for name, (kind, storage) in FORMATS.items():
        path = os.path.join(directory, name)
        create(path, kind, storage)
        extend(path)
        result[name] = describe(path)
        with netCDF4.Dataset(path) as nc:
            expected = field(5)
            assert np.array_equal(np.asarray(nc["t"][5]), expected), f"{name}: values differ"
    print(json.dumps(result, indent=1, sort_keys=True))


main(sys.argv[1])
