"""How an application writes an array, with and without compression of its own.

`writer()` and `reader()` load the library and return the function to be timed.
"""


class NotSupported(Exception):
    """An installed library lacks a needed feature."""


class Hdf5:
    suffix = ".h5"

    def __init__(self, name, filters):
        """`filters` for h5py, as a dictionary or a function that makes one; None: contiguous."""
        self.name, self.filters = name, filters

    def writer(self):
        import h5py

        filters = self.filters() if callable(self.filters) else self.filters

        def write(path, values):
            options = {} if filters is None else {"chunks": (1, *values.shape[1:]), **filters}
            with h5py.File(path, "w") as file:
                data = file.create_dataset("field", values.shape, "f4", **options)
                for index, plane in enumerate(values):
                    data[index] = plane

        return write

    def reader(self):
        import h5py

        if callable(self.filters):
            self.filters()

        def read(path):
            with h5py.File(path) as file:
                return file["field"][:]

        return read


class NetCdf4:
    suffix = ".nc"

    def __init__(self, level):
        self.name, self.level = f"netCDF4 shuffle+deflate-{level}", level

    def writer(self):
        import netCDF4

        def write(path, values):
            with netCDF4.Dataset(path, "w") as data:
                for name, length in zip("tyx", values.shape):
                    data.createDimension(name, length)
                variable = data.createVariable(
                    "field", "f4", tuple("tyx"), zlib=True, complevel=self.level, shuffle=True,
                    chunksizes=(1, *values.shape[1:]),
                )  # fmt: skip
                for index, plane in enumerate(values):
                    variable[index] = plane

        return write

    def reader(self):
        import netCDF4

        def read(path):
            with netCDF4.Dataset(path) as data:
                data.set_auto_mask(False)
                return data["field"][:]

        return read


class Zarr:
    suffix, name = ".zarr", "Zarr v3 Blosc shuffle+zstd-1"

    def writer(self):
        import zarr
        from zarr.codecs import BloscCodec

        def write(path, values):
            data = zarr.create_array(
                path, shape=values.shape, chunks=(1, *values.shape[1:]), dtype="f4", zarr_format=3,
                compressors=BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"),
            )  # fmt: skip
            for index, plane in enumerate(values):
                data[index] = plane

        return write

    def reader(self):
        import zarr

        return lambda path: zarr.open_array(path, mode="r")[:]


class Adios2:
    suffix, name = ".bp", "ADIOS2 Blosc2 shuffle+zstd-1"

    def writer(self):
        import adios2

        mode = adios2.bindings.Mode
        context = adios2.Adios()
        try:
            parameters = {"compressor": "zstd", "clevel": "1", "doshuffle": "BLOSC_SHUFFLE"}
            operator = context.define_operator("compressor", "blosc", parameters)
        except ValueError as error:
            raise NotSupported("this ADIOS2 was built without Blosc") from error

        def write(path, values):
            file = context.declare_io("field")
            shape = list(values.shape[1:])
            variable = file.define_variable("field", values[0], shape, [0, 0], shape, True)
            variable.add_operation(operator)
            engine = file.open(path, mode.Write)
            for plane in values:
                engine.begin_step()
                engine.put(variable, plane, mode.Sync)
                engine.end_step()
            engine.close()

        return write

    def reader(self):
        import adios2
        import numpy

        def read(path):
            with adios2.Stream(path, "r") as file:
                return numpy.stack([file.read("field") for _ in file.steps()])

        return read


def deflate(level):
    return Hdf5(f"h5py shuffle+deflate-{level}", {"compression": "gzip", "compression_opts": level, "shuffle": True})


def blosc2(level):
    def filters():
        import hdf5plugin

        return dict(hdf5plugin.Blosc2(cname="zstd", clevel=level, filters=hdf5plugin.Blosc2.SHUFFLE))

    return Hdf5(f"h5py Blosc2 shuffle+zstd-{level}", filters)


def compressing(smoke):
    """Applications that compress their own data."""
    if smoke:
        return [deflate(1)]
    return [deflate(1), deflate(4), NetCdf4(1), NetCdf4(4), blosc2(1), blosc2(5), Zarr(), Adios2()]
