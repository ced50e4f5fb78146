#!/usr/bin/env python3
"""Writes the files in samples/ and their contents (expected.json).

Needs the Python environment of tests/scripts/setup.sh, ncgen (netcdf-bin), and for PnetCDF
libpnetcdf-dev and openmpi-bin; PNETCDF may name a directory where they are unpacked.

    make_samples.py [-o DIRECTORY] [name of a sample ...]

The large ones are made when they are named and are not kept here; SHALE_LAYOUT_SAMPLES tells
the test where they are.
"""

import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import h5py
import netCDF4
import numpy as np
import scipy.io
import xarray

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {"i": "int", "u": "uint", "f": "float", "S": "char", "V": "opaque", "b": "int", "c": "float"}
RNG = np.random.default_rng(4711)


def values(dtype, *shape):
    """Numbers that differ from each other, from zero and from byte-swapped ones."""
    count = int(np.prod(shape))
    if np.dtype(dtype).kind == "f":
        return (np.arange(count) * 0.37 + 1.5).astype(dtype).reshape(shape)
    limit = min(np.iinfo(dtype).max, 30000)
    return RNG.integers(1, limit, count).astype(dtype).reshape(shape)


def variable(data, order, *, width=None, kind=None, **more):
    """The expected contents of a variable, compared in little-endian order."""
    data = np.asarray(data)
    little = data.astype(data.dtype.newbyteorder("<"))
    return {
        "kind": kind or KINDS[data.dtype.kind],
        "width": width or data.dtype.itemsize,
        "order": order,
        "shape": list(data.shape),
        "data": little.tobytes().hex(),
        **more,
    }


def netcdf_classic(path, model, write):
    with netCDF4.Dataset(path, "w", format=model) as file:
        write(file)
    found = {}
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        file.set_auto_scale(False)
        for name, one in file.variables.items():
            found[name] = variable(one[...], "big", record=any(
                file.dimensions[d].isunlimited() for d in one.dimensions))
    return found


def fixed_and_records(types):
    def write(file):
        file.title = "fixed and record variables of every type"
        file.createDimension("time", None)
        file.createDimension("y", 3)
        file.createDimension("x", 5)
        for number, kind in enumerate(types):
            one = file.createVariable(f"fixed_{kind}", kind, ("y", "x"))
            one.units = "m" * (number + 1)
            one[:] = values(kind, 3, 5)
        for kind in types:
            one = file.createVariable(f"record_{kind}", kind, ("time", "x"), fill_value=7)
            one[0:7] = values(kind, 7, 5)
        file.createVariable("scalar", "f8", ())[...] = 2.5
        file.createVariable("letters", "S1", ("y", "x"))[:] = np.frombuffer(
            b"abcdefghijklmno", "S1").reshape(3, 5)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(7) + 0.25

    return write


def classic(path):
    return netcdf_classic(path, "NETCDF3_CLASSIC", fixed_and_records(["i1", "i2", "i4", "f4", "f8"]))


def cdf2(path):
    return netcdf_classic(path, "NETCDF3_64BIT_OFFSET", fixed_and_records(["i2", "i1", "f4"]))


def cdf5(path):
    types = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    return netcdf_classic(path, "NETCDF3_64BIT_DATA", fixed_and_records(types))


def single_record(kind, inner):
    def make(path):
        def write(file):
            file.createDimension("time", None)
            file.createDimension("x", inner)
            file.createVariable("before", "i2", ("x",))[:] = values("i2", inner)
            file.createVariable("only", kind, ("time", "x"))[0:9] = values(kind, 9, inner)

        return netcdf_classic(path, "NETCDF3_CLASSIC", write)

    return make


def mid_write(marker):
    """Records are on disk, their number is not yet (0) or never will be (streaming)."""

    def make(path):
        found = classic(path)
        with open(path, "r+b") as file:
            file.seek(4)
            file.write(marker)
        return found

    return make


def redefined(path):
    """Header and data have moved several times, once with records in the file."""

    def write(file):
        file.createDimension("time", None)
        file.createDimension("x", 6)
        file.createVariable("a", "f4", ("time", "x"))[0:4] = values("f4", 4, 6)
        file.createVariable("b", "i2", ("x",))[:] = values("i2", 6)
        file.sync()
        file.history = "longer " * 40
        file.createVariable("c", "i1", ("time", "x"))[0:4] = values("i1", 4, 6)
        file.variables["a"].long_name = "name " * 60

    return netcdf_classic(path, "NETCDF3_CLASSIC", write)


def ncgen(path):
    cdl = """netcdf sample {
dimensions: lat = 3, lon = 4, frtime = unlimited ;
variables:
  int lat(lat) ; float wind(frtime, lat, lon) ; short rh(frtime, lon) ; byte flag(frtime) ;
  wind:_FillValue = -9999.f ;
data:
  lat = 10, 20, 30 ;
  wind = %s ;
  rh = %s ;
  flag = 1, 2 ;
}""" % (", ".join(str(i + 0.5) for i in range(24)), ", ".join(str(i) for i in range(8)))
    subprocess.run(["ncgen", "-k", "classic", "-o", path], input=cdl.encode(), check=True)
    return {
        "lat": variable(np.array([10, 20, 30], "i4"), "big"),
        "wind": variable((np.arange(24) + 0.5).astype("f4").reshape(2, 3, 4), "big",
                         fill=struct.pack(">f", -9999).hex(), record=True),
        "rh": variable(np.arange(8, dtype="i2").reshape(2, 4), "big", fill="8001", record=True),
        "flag": variable(np.array([1, 2], "i1"), "big", record=True),
    }


def scipy_classic(path):
    a, b = values("i2", 5, 3), values("f8", 4)
    with scipy.io.netcdf_file(path, "w", version=2) as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createDimension("y", 4)
        file.createVariable("a", "i2", ("time", "x"))[:] = a
        file.createVariable("b", "f8", ("y",))[:] = b
    return {"a": variable(a, "big", record=True), "b": variable(b, "big")}


def dataset():
    return xarray.Dataset(
        {"t": (("time", "lat", "lon"), values("f4", 4, 3, 5)), "n": (("lat",), values("i4", 3))},
        coords={"time": np.arange(4.0), "lat": np.array([1.0, 2.0, 3.0])},
    )


def xarray_scipy(path):
    data = dataset()
    data.to_netcdf(path, engine="scipy", unlimited_dims=["time"])
    return {name: variable(data[name].values, "big") for name in ("t", "n", "time", "lat")}


def xarray_netcdf4(path):
    data = dataset()
    data.to_netcdf(path, engine="netcdf4", encoding={"t": {"chunksizes": (2, 3, 5)}})
    return {name: variable(data[name].values, "little") for name in ("t", "n", "time", "lat")}


def pnetcdf(path):
    prefix = os.environ.get("PNETCDF", "")
    library = next(pathlib.Path(prefix or "/").glob("usr/lib/*/libpnetcdf.so"), None)
    if library is None:
        return None
    libraries = library.parent
    environment = {
        **os.environ,
        "OPAL_PREFIX": f"{prefix}/usr",
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/openmpi/lib",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    with tempfile.TemporaryDirectory() as work:
        program = f"{work}/pnetcdf"
        subprocess.run(["cc", "-o", program, HERE / "pnetcdf.c", f"-I{prefix}/usr/include",
                        f"-I{libraries}/openmpi/include", f"-L{libraries}",
                        f"-L{libraries}/openmpi/lib", "-lpnetcdf", "-lmpi",
                        f"-Wl,-rpath-link,{libraries}"], check=True)
        subprocess.run([f"{prefix}/usr/bin/mpirun.openmpi", "--oversubscribe", "-n", "2", program,
                        path], check=True, env=environment)
    return {
        "grid": variable(np.arange(4 * 6, dtype="i4").reshape(4, 6) + 100, "big"),
        "level": variable(np.arange(3 * 6, dtype="f8").reshape(3, 6) / 4, "big", record=True),
        "mark": variable(np.arange(3 * 6, dtype="i2").reshape(3, 6) + 1, "big", record=True),
    }


def hdf5_variables(path):
    """The view of h5py, with the place of every filtered chunk."""
    found = {}

    def visit(name, one):
        if not isinstance(one, h5py.Dataset):
            return
        kind = one.dtype
        if one.dtype.kind == "O" or one.is_virtual or one.external:
            # Length, address in a heap, number there.
            width = 16 if one.dtype.kind == "O" else one.dtype.itemsize
            found[name] = {"width": width, "shape": list(one.shape)}
            return
        order = "big" if kind.byteorder == ">" else "little"
        expected = variable(one[...], order)
        if kind.subdtype or one.dtype.subdtype:
            base = (kind.subdtype or one.dtype.subdtype)[0]
            expected.update(width=base.itemsize, kind=KINDS[base.kind])
        if one[...].dtype.itemsize != expected["width"]:
            expected["width"] = one[...].dtype.itemsize
        if kind.kind == "c":
            expected = variable(one[...].view("f4").reshape(*one.shape, 2), order)
        if name == "vector":
            expected = variable(one[...].view(">i2").reshape(*one.shape, 3), "big")
        elif kind.kind == "V" and kind.names:
            # Elements are compared as the file has them.
            expected["data"] = one[...].tobytes().hex()
        if one.chunks:
            count = one.id.get_num_chunks()
            chunks = [one.id.get_chunk_info(i) for i in range(0, count, count // 50 + 1)]
            expected["chunks"] = [[c.byte_offset, c.size] for c in chunks]
            if one.id.get_create_plist().get_nfilters() > 0:
                expected["filtered"] = True
        elif one.id.get_offset() is not None:
            expected["offset"] = one.id.get_offset()
        else:
            expected["nowhere"] = True
        if one.maxshape and one.maxshape[0] is None:
            expected["record"] = True
        found[name] = expected

    with h5py.File(path, locking=False) as file:
        file.visititems(visit)
    return found


def netcdf4(write):
    def make(path):
        with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
            write(file)
        return hdf5_variables(path)

    return make


def nc4_contiguous(file):
    file.createDimension("y", 6)
    file.createDimension("x", 7)
    for kind in ["f4", "i2", ">f8"]:
        one = file.createVariable("v" + kind.strip(">"), kind, ("y", "x"), contiguous=True,
                                  endian="big" if ">" in kind else "native")
        one[:] = values(np.dtype(kind).newbyteorder("="), 6, 7)


def nc4_chunked(file):
    file.createDimension("time", None)
    file.createDimension("y", 7)
    file.createDimension("x", 9)
    one = file.createVariable("t", "f4", ("time", "y", "x"), chunksizes=(2, 4, 5), fill_value=-1)
    one[0:5] = values("f4", 5, 7, 9)
    group = file.createGroup("deep").createGroup("deeper")
    group.createVariable("u", "i4", ("y", "x"), chunksizes=(7, 3))[:] = values("i4", 7, 9)
    file.createVariable("time", "f8", ("time",), chunksizes=(16,))[0:5] = np.arange(5.0)


def nc4_deflated(file):
    file.createDimension("y", 30)
    file.createDimension("x", 20)
    file.createVariable("packed", "f4", ("y", "x"), zlib=True, chunksizes=(10, 20))[:] = values(
        "f4", 30, 20)
    file.createVariable("plain", "f4", ("y", "x"), chunksizes=(10, 20))[:] = values("f4", 30, 20)


def nc4_types(file):
    file.createDimension("x", 5)
    pair = file.createCompoundType(np.dtype([("a", "i2"), ("b", "f8")], align=True), "pair")
    one = file.createVariable("pairs", pair, ("x",))
    data = np.zeros(5, pair.dtype)
    data["a"], data["b"] = values("i2", 5), values("f8", 5)
    one[:] = data
    ragged = file.createVLType(np.int32, "ragged")
    rows = np.empty(5, object)
    for i in range(5):
        rows[i] = np.arange(i + 1, dtype="i4")
    file.createVariable("rows", ragged, ("x",))[:] = rows
    file.createVariable("names", str, ("x",))[:] = np.array(list("vwxyz"), object)


def nc4_many(file):
    """Enough variables that the group keeps its links in a heap."""
    file.createDimension("x", 3)
    for i in range(40):
        file.createVariable(f"variable_{i:03}", "i4", ("x",))[:] = values("i4", 3)


def hdf5(write, **options):
    def make(path):
        with h5py.File(path, "w", **options) as file:
            write(file)
        return hdf5_variables(path)

    return make


def h5_contiguous(file):
    file["le"] = values("<f8", 4, 5)
    file["be"] = values(">i4", 6)
    file["sub/inner"] = values("u2", 3, 3, 3)
    file["scalar"] = np.float32(1.25)
    file["empty"] = np.zeros((0, 4), "f4")
    file["text"] = np.array([b"one", b"three", b"seven"], "S7")
    file["flags"] = np.array([True, False, True])
    file.create_dataset("unwritten", (5, 5), "f4")
    file["again"] = file["le"]
    file["loop"] = file["/"]
    file["sub/soft"] = h5py.SoftLink("/le")
    file["away"] = h5py.ExternalLink("other.h5", "/le")


def h5_types(file):
    record = np.zeros(6, np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3")]))
    record["a"], record["b"], record["c"] = values("i2", 6), values("f8", 6), b"xyz"
    file["compound"] = record
    # Members of one kind: numbers, with one more dimension.
    file["complex"] = (values("f4", 6) + 1j * values("f4", 6)).astype("<c8")
    file["vector"] = np.frombuffer(values(">i2", 12), [("x", ">i2"), ("y", ">i2"), ("z", ">i2")])
    file["committed"] = np.dtype("<f4")
    file.create_dataset("typed", data=values("f4", 7), dtype=file["committed"])
    file.create_dataset("vlen", (4,), h5py.vlen_dtype(np.int16))[1] = [1, 2, 3]
    triple = file.create_dataset("triples", (4,), np.dtype(("<f4", (3,))))
    triple[...] = values("f4", 4, 3)
    chunked = file.create_dataset("chunked_triples", (5,), np.dtype(("<i2", (3,))), chunks=(2,))
    chunked[...] = values("i2", 5, 3)
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((4,))
    h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT16, space, compact).write(
        space, space, values("i2", 4))
    layout = h5py.VirtualLayout((2, 7), "f4")
    layout[0] = h5py.VirtualSource(file["typed"])
    file.create_virtual_dataset("virtual", layout)


def h5_unaligned(file):
    """Data at offsets that no element width divides."""
    for i in range(4):
        file.create_dataset(f"odd_{i}", data=values("u1", 2 * i + 3))
        file.create_dataset(f"wide_{i}", data=values("f8", 5))


def h5_old_group(file):
    """Symbol tables of more than one node."""
    for i in range(60):
        file[f"group_{i % 3}/number_{i:02}"] = np.int32(i + 1)


def early(file, name, shape, chunks, kind):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunks)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple(shape)
    one = h5py.h5d.create(file.id, name, h5py.h5t.py_create(np.dtype(kind)), space, plist)
    h5py.Dataset(one)[...] = values(kind, *shape)


def h5_latest(file):
    """Every kind of chunk index."""
    file.create_dataset("single", data=values("f4", 6, 5), chunks=(6, 5))
    early(file, b"implicit", (7, 5), (3, 2), "i2")
    file.create_dataset("fixed", data=values("i4", 9, 8), chunks=(4, 3))
    file.create_dataset("fixed_max", (5, 4), "i4", chunks=(2, 2), maxshape=(9, 8))[...] = values(
        "i4", 5, 4)
    file.create_dataset("extensible", data=values("i2", 70, 3), chunks=(2, 2), maxshape=(None, 3))
    file.create_dataset("extensible_inner", data=values("i2", 5, 70), chunks=(2, 2),
                        maxshape=(6, None))
    file.create_dataset("tree", data=values("i2", 30, 20), chunks=(3, 3), maxshape=(None, None))
    sparse = file.create_dataset("sparse", (40, 40), "f4", chunks=(4, 4), fillvalue=-3)
    sparse[8:12, 20:30] = values("f4", 4, 10)


def h5_latest_filtered(file):
    """The same with filters: entries are wider, some of them in layout version 5."""
    options = {"compression": "gzip", "shuffle": True}
    file.create_dataset("single", data=values("f4", 20, 50), chunks=(20, 50), **options)
    file.create_dataset("fixed", data=values("i4", 30, 40), chunks=(10, 20), **options)
    file.create_dataset("extensible", data=values("i2", 300), chunks=(20,), maxshape=(None,),
                        **options)
    file.create_dataset("tree", data=values("i2", 30, 20), chunks=(10, 10),
                        maxshape=(None, None), **options)


def h5_arrays(file):
    """Arrays of chunks so long that they have pages and super blocks."""
    file.create_dataset("paged", data=values("u1", 2500), chunks=(1,))
    file.create_dataset("grown", data=values("u1", 3000), chunks=(1,), maxshape=(None,))
    holes = file.create_dataset("holes", (5000,), "u1", chunks=(1,), fillvalue=9)
    holes[4500:4510] = values("u1", 10)


def h5_deep_tree(file):
    """A version 2 B-tree of several levels."""
    file.create_dataset("tree", data=values("u1", 60, 50), chunks=(1, 1), maxshape=(None, None))


def h5_dense_group(file):
    """Links in a heap with more than one block, under a B-tree of several levels."""
    file.create_group("one_group_with_many_names")
    for i in range(700):
        if i % 50:
            file[f"another_rather_long_name_{i:04}"] = file["one_group_with_many_names"]
        else:
            file.create_dataset(f"dataset_{i:04}", data=values("i4", 3))


def h5_filters(file):
    file.create_dataset("checked", data=values("f4", 8, 6), chunks=(4, 6), fletcher32=True)
    file.create_dataset("shuffled", data=values("f4", 8, 6), chunks=(4, 6), shuffle=True)
    file.create_dataset("lzf", data=np.zeros((8, 60), "f4"), chunks=(4, 60), compression="lzf")
    masked = file.create_dataset("masked", (8, 6), "<f4", chunks=(4, 6), compression="gzip")
    masked.id.write_direct_chunk((0, 0), values("<f4", 4, 6).tobytes(), filter_mask=1)
    masked.id.write_direct_chunk((4, 0), values("<f4", 4, 6).tobytes(), filter_mask=1)


def h5_shrunk(file):
    one = file.create_dataset("t", data=values("i4", 12, 4), chunks=(3, 2), maxshape=(None, 4))
    one.resize((7, 4))


def large_arrays(file):
    """Data blocks with pages; a tree of three levels; tables of tables in a heap."""
    file.create_dataset("grown", data=values("u1", 200000), chunks=(1,), maxshape=(None,))
    late = file.create_dataset("late", (200000,), "u1", chunks=(1,), maxshape=(None,))
    late[150000:150100] = values("u1", 100)
    file.create_dataset("tree", data=values("u1", 100, 90), chunks=(1, 1), maxshape=(None, None))
    file.create_group("hub")
    for i in range(30000):
        file[f"group/another_rather_long_name_{i:06}"] = file["hub"]
    file["group/needle"] = values("f8", 5)


def npy(path):
    data = values("<f4", 4, 6)
    np.save(path, data)
    return {"array": variable(data, "little")}


def npy_fortran(path):
    data = values(">i2", 4, 6)
    np.save(path, np.asfortranarray(data))
    return {"array": variable(data.T.copy(), "big")}


def npy_record(path):
    data = np.zeros(5, [("a", "<i4"), ("b", "<f8", (2,))])
    data["a"], data["b"] = values("i4", 5), values("f8", 5, 2)
    np.save(path, data)
    found = variable(data["a"], "little", width=20, kind="opaque")
    return {"array": {**found, "data": data.tobytes().hex()}}


def fits(path):
    def unit(cards, data):
        text = b"".join(card.ljust(80).encode() for card in cards + ["END"])
        return text.ljust(-len(text) // 2880 * -2880) + data.ljust(-len(data) // 2880 * -2880, b"\0")

    def card(key, value):
        return f"{key:8}= {value:>20} / about it"

    image, other = values(">i2", 5, 7), values(">f4", 2, 3, 4)
    table = bytes(range(60))
    first = [card("SIMPLE", "T"), card("BITPIX", 16), card("NAXIS", 2), card("NAXIS1", 7),
             card("NAXIS2", 5), card("BLANK", -32768), card("EXTEND", "T")]
    second = [card("XTENSION", "'IMAGE   '"), card("BITPIX", -32), card("NAXIS", 3),
              card("NAXIS1", 4), card("NAXIS2", 3), card("NAXIS3", 2), card("PCOUNT", 0),
              card("GCOUNT", 1), card("EXTNAME", "'CUBE    '")]
    third = [card("XTENSION", "'BINTABLE'"), card("BITPIX", 8), card("NAXIS", 2),
             card("NAXIS1", 12), card("NAXIS2", 5), card("PCOUNT", 0), card("GCOUNT", 1)]
    with open(path, "wb") as file:
        file.write(unit(first, image.tobytes()) + unit(second, other.tobytes()) + unit(third, table))
    return {
        "hdu0": variable(image, "big", fill="8000"),
        "CUBE": variable(other, "big"),
        "hdu2": {"kind": "opaque", "width": 12, "order": "big", "shape": [5], "data": table.hex()},
    }


MAKERS = {
    "classic.nc": ("cdf1", classic),
    "cdf2.nc": ("cdf2", cdf2),
    "cdf5.nc": ("cdf5", cdf5),
    "single_short.nc": ("cdf1", single_record("i2", 3)),
    "single_byte.nc": ("cdf1", single_record("i1", 5)),
    "single_float.nc": ("cdf1", single_record("f4", 3)),
    "numrecs_zero.nc": ("cdf1", mid_write(b"\0\0\0\0")),
    "streaming.nc": ("cdf1", mid_write(b"\xff\xff\xff\xff")),
    "redefined.nc": ("cdf1", redefined),
    "ncgen.nc": ("cdf1", ncgen),
    "scipy.nc": ("cdf2", scipy_classic),
    "xarray_scipy.nc": ("cdf2", xarray_scipy),
    "pnetcdf.nc": ("cdf5", pnetcdf),
    "xarray.nc": ("netcdf4", xarray_netcdf4),
    "nc4_contiguous.nc": ("netcdf4", netcdf4(nc4_contiguous)),
    "nc4_chunked.nc": ("netcdf4", netcdf4(nc4_chunked)),
    "nc4_deflated.nc": ("netcdf4", netcdf4(nc4_deflated)),
    "nc4_types.nc": ("netcdf4", netcdf4(nc4_types)),
    "nc4_many.nc": ("netcdf4", netcdf4(nc4_many)),
    "contiguous.h5": ("hdf5", hdf5(h5_contiguous)),
    "contiguous_latest.h5": ("hdf5", hdf5(h5_contiguous, libver="latest")),
    "types.h5": ("hdf5", hdf5(h5_types)),
    "types_latest.h5": ("hdf5", hdf5(h5_types, libver="latest")),
    "unaligned.h5": ("hdf5", hdf5(h5_unaligned, userblock_size=512, libver="latest")),
    "user_block.h5": ("hdf5", hdf5(h5_filters, userblock_size=2048)),
    "old_group.h5": ("hdf5", hdf5(h5_old_group)),
    "latest.h5": ("hdf5", hdf5(h5_latest, libver="latest")),
    "v18.h5": ("hdf5", hdf5(h5_latest, libver=("v108", "v108"))),
    "v110_filtered.h5": ("hdf5", hdf5(h5_latest_filtered, libver=("v110", "v110"))),
    "latest_filtered.h5": ("hdf5", hdf5(h5_latest_filtered, libver="latest")),
    "arrays.h5": ("hdf5", hdf5(h5_arrays, libver="latest")),
    "deep_tree.h5": ("hdf5", hdf5(h5_deep_tree, libver="latest")),
    "dense_group.h5": ("hdf5", hdf5(h5_dense_group, libver="latest")),
    "filters.h5": ("hdf5", hdf5(h5_filters, libver="latest")),
    "shrunk.h5": ("hdf5", hdf5(h5_shrunk)),
    "array.npy": ("npy", npy),
    "fortran.npy": ("npy", npy_fortran),
    "record.npy": ("npy", npy_record),
    "images.fits": ("fits", fits),
}

LARGE = {
    "large_arrays.h5": ("hdf5", hdf5(large_arrays, libver="latest")),
    "large_old.h5": ("hdf5", hdf5(large_arrays, libver=("earliest", "v110"))),
}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("-o", type=pathlib.Path, default=HERE / "samples")
    arguments.add_argument("names", nargs="*")
    arguments = arguments.parse_args()
    directory = arguments.o
    directory.mkdir(exist_ok=True)
    record = directory / "expected.json"
    expected = json.loads(record.read_text()) if record.exists() else {}
    for name in arguments.names or MAKERS:
        kind, make = (MAKERS | LARGE)[name]
        with tempfile.TemporaryDirectory() as work:
            found = make(os.path.join(work, name))
            if found is None:
                print(f"{name}: left as it is, what makes it is not installed")
                continue
            shutil.copyfile(os.path.join(work, name), directory / name)
        expected[name] = {"format": kind, "variables": found}
        print(f"{name}: {(directory / name).stat().st_size} bytes, {len(found)} variables")
    lines = [f"{json.dumps(name)}: {json.dumps(expected[name])}" for name in sorted(expected)]
    record.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
