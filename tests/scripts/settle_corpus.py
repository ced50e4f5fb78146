"""Files of the formats that settling understands, and some that it does not."""
import sys
from pathlib import Path

import h5py
import netCDF4
import numpy as np

here = Path(sys.argv[1])
rng = np.random.default_rng(7)


def field(*shape):
    """Smooth in every dimension, with a little noise, as simulations write it."""
    value = np.zeros(shape)
    for axis, length in enumerate(shape):
        wave = np.sin(np.linspace(0, 3 + axis, length))
        value += wave.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return (20 + 5 * value + 0.001 * rng.standard_normal(shape)).astype("f4")


def netcdf(name, kind, **variable):
    with netCDF4.Dataset(here / name, "w", format=kind) as data:
        data.createDimension("time", None)
        data.createDimension("level", 7)
        data.createDimension("lat", 90)
        data.createDimension("lon", 180)
        data.createVariable("lat", "f8", ("lat",))[:] = np.linspace(-90, 90, 90)
        wind = data.createVariable("wind", "f4", ("time", "lat", "lon"), **variable)
        count = data.createVariable("count", "i2", ("time", "lat", "lon"), **variable)
        step = data.createVariable("step", "i4", ("time",))
        soil = data.createVariable("soil", "f4", ("level", "lat", "lon"), **variable)
        wind[:] = field(41, 90, 180)
        count[:] = (field(41, 90, 180) * 10).astype("i2")
        step[:] = np.arange(41)
        soil[:] = field(7, 90, 180)


netcdf("classic.nc", "NETCDF3_CLASSIC")
netcdf("offset64.nc", "NETCDF3_64BIT_OFFSET")
netcdf("data64.nc", "NETCDF3_64BIT_DATA")
netcdf("deflated.nc", "NETCDF4", zlib=True, shuffle=True)
netcdf("chunked.nc", "NETCDF4")

with h5py.File(here / "plain.h5", "w") as data:
    data["cube"] = field(64, 64, 128).astype("f8")
    data.create_dataset("tiles", data=field(200, 300), chunks=(64, 64))
    data["group/ints"] = np.arange(300_000, dtype=">i8")
    data["names"] = np.array([b"one", b"two", b"three"])
with h5py.File(here / "latest.h5", "w", libver="latest") as data:
    grown = data.create_dataset("grown", (10, 128, 128), "f4", maxshape=(None, 128, 128), chunks=(1, 128, 128))
    grown[:] = field(10, 128, 128)

np.save(here / "array.npy", field(50, 100, 100))
field(3_000_000).tofile(here / "raw.bin")
(here / "noise.bin").write_bytes(rng.bytes(3_000_000))
(here / "small.txt").write_text("a few words\n")
with open(here / "sparse.bin", "wb") as sparse:
    sparse.write(field(100_000).tobytes())
    sparse.seek(10_000_000)
    sparse.write(field(100_000).tobytes())
