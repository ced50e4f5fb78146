"""xarray with each of its NetCDF engines: xarray_files.py DIRECTORY"""
import hashlib
import json
import os
import sys

import numpy as np
import xarray as xr

WRITERS = {
    "netcdf4": {"engine": "netcdf4", "format": "NETCDF4"},
    "h5netcdf": {"engine": "h5netcdf"},
    "scipy": {"engine": "scipy", "format": "NETCDF3_64BIT"},
    "netcdf4-classic": {"engine": "netcdf4", "format": "NETCDF3_CLASSIC"},
}
READERS = {
    "netcdf4": ["netcdf4", "h5netcdf"],
    "h5netcdf": ["h5netcdf", "netcdf4"],
    "scipy": ["scipy", "netcdf4"],
    "netcdf4-classic": ["netcdf4", "scipy"],
}


def dataset():
    rng = np.random.default_rng(3)
    shape = (24, 60, 120)
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), rng.normal(285, 10, shape).astype("f4"), {"units": "K"}),
            "tp": (("time", "lat", "lon"), np.abs(rng.normal(0, 1e-3, shape))),
            "mask": (("lat", "lon"), rng.integers(0, 2, shape[1:]).astype("i4")),
        },
        coords={
            "time": np.datetime64("2020-01-01T00:00", "ns") + np.arange(24) * np.timedelta64(1, "h"),
            "lat": np.linspace(-90, 90, 60),
            "lon": np.linspace(0, 357, 120),
        },
        attrs={"Conventions": "CF-1.8"},
    )


def digest(ds):
    return {
        name: [list(v.shape), hashlib.sha256(np.ascontiguousarray(v.values).tobytes()).hexdigest()]
        for name, v in sorted(ds.variables.items())
    }


def main(directory):
    expected = dataset()
    result = {}
    for name, options in WRITERS.items():
        path = os.path.join(directory, f"{name}.nc")
        encoding = {"t2m": {"zlib": True}} if name == "netcdf4" else {}
        expected.to_netcdf(path, encoding=encoding, **options)
        for engine in READERS[name]:
            with xr.open_dataset(path, engine=engine) as found:
                part = found["t2m"].isel(time=slice(3, 9, 2), lat=slice(None, None, -5)).mean(("lat", "lon")).values
                assert np.allclose(part, expected["t2m"].isel(time=slice(3, 9, 2), lat=slice(None, None, -5)).mean(("lat", "lon")))
                xr.testing.assert_equal(found.load(), expected)
                result[f"{name} by {engine}"] = digest(found)
        # Replace a file that has been read, as a workflow does.
        changed = expected.assign(t2m=expected["t2m"] + 1)
        changed.to_netcdf(path, mode="w", **options)
        with xr.open_dataset(path, engine=READERS[name][1]) as found:
            xr.testing.assert_equal(found.load(), changed)
            result[f"{name} replaced"] = digest(found)
    print(json.dumps(result, indent=1, sort_keys=True))


main(sys.argv[1])
