"""Writes arrays with LIBRARY into DIRECTORY until the device is full.

Says which exception it got and how many steps were complete before it, as JSON. What is
closed by then must be readable; the program itself must not die."""
import json
import os
import sys

import numpy

library, directory = sys.argv[1:]
path = os.path.join(directory, f"full-{library}.nc")
random = numpy.random.default_rng(7)
steps, shape = 400, (256, 1024)


def field():
    return random.standard_normal(shape).astype("f4")


def netcdf4(kind):
    import netCDF4

    with netCDF4.Dataset(path, "w", format=kind) as data:
        data.createDimension("time", None)
        data.createDimension("y", shape[0])
        data.createDimension("x", shape[1])
        variable = data.createVariable("field", "f4", ("time", "y", "x"))
        for step in range(steps):
            variable[step] = field()


def h5py_():
    import h5py

    with h5py.File(path, "w") as data:
        variable = data.create_dataset("field", (steps, *shape), "f4", chunks=(1, *shape))
        for step in range(steps):
            variable[step] = field()


def xarray_():
    import xarray

    for step in range(steps):
        name = os.path.join(directory, f"full-xarray-{step}.nc")
        xarray.Dataset({"field": (("y", "x"), field())}).to_netcdf(name, engine="netcdf4")


writers = {
    "classic": lambda: netcdf4("NETCDF3_64BIT_OFFSET"),
    "netcdf4": lambda: netcdf4("NETCDF4"),
    "h5py": h5py_,
    "xarray": xarray_,
}
told = None
try:
    writers[library]()
except Exception as error:
    told = type(error).__name__
print(json.dumps({"told": told}))
