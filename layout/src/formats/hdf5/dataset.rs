//! Turns a dataset into a variable and its extents.

use super::chunk_sink::ChunkSink;
use super::chunks;
use super::dataspace::{self, Dataspace};
use super::datatype;
use super::file::Hdf5File;
use super::filters::{self, Filters};
use super::object::{self, Object};
use super::storage::{self, Chunked, Storage};
use crate::builder::LayoutBuilder;
use crate::error::Error;
use crate::extent::{Content, LayoutExtent};
use crate::variable::bytes;
use crate::variable::{Element, Variable};

/// Adds the dataset, and the parts of its storage that are understood.
pub(crate) fn read(
    file: &mut Hdf5File<'_, '_>,
    builder: &mut LayoutBuilder,
    object: &Object,
    path: &str,
) -> Result<(), Error> {
    let missing = |what| Error::Malformed { what, found: 0 };
    let space = object::body(file, object, object::DATASPACE)?
        .ok_or(missing("dataset without a dataspace"))?;
    let space = dataspace::parse(file, &space)?;
    let kind = object::body(file, object, object::DATATYPE)?
        .ok_or(missing("dataset without a datatype"))?;
    let (element, inner) = datatype::parse(&kind)?;
    let layout = object
        .message(object::LAYOUT)
        .ok_or(missing("dataset without a layout"))?;
    let storage = storage::parse(file, &layout.body);
    let pipeline = match object::body(file, object, object::FILTERS)? {
        Some(body) => Filters::parse(&body)?,
        None => Filters::default(),
    };

    let with_inner = |shape: &[u64]| shape.iter().chain(&inner).copied().collect::<Vec<_>>();
    let chunk = match &storage {
        Ok(Storage::Chunked(chunked)) => Some(with_inner(&chunked.shape)),
        _ => None,
    };
    let width = bytes(element.width, &inner).unwrap_or(0);
    let fill = fill(file, object, element, &inner)?;
    let variable = builder.variable(
        file.reader,
        Variable {
            path: path.into(),
            element,
            shape: with_inner(&space.shape),
            chunk,
            fill,
            filters: pipeline.names.clone(),
            shuffle: pipeline.shuffle,
            record: space.limits.first() == Some(&None),
            interleaved: false,
        },
    )?;
    match storage? {
        Storage::Elsewhere | Storage::Contiguous { address: None } => Ok(()),
        Storage::Contiguous {
            address: Some(address),
        } => {
            let len = bytes(element.width, &with_inner(&space.shape));
            let len = len.ok_or(missing("size of a dataset"))?;
            let offset = file.offset_of(address)?;
            let content = Content::Array { variable };
            let extent = LayoutExtent {
                offset,
                len,
                content,
            };
            builder.place(file.reader, extent)
        }
        Storage::Chunked(chunked) => {
            let chunk_len = chunk_len(&chunked, &space, width)?;
            let mut sink = ChunkSink {
                builder,
                variable,
                space: &space,
                chunked: &chunked,
                filters: &pipeline,
                chunk_len,
            };
            chunks::read(file, &mut sink)
        }
    }
}

/// Bytes of a chunk, if its shape fits the dataset's and its elements are as wide.
fn chunk_len(chunked: &Chunked, space: &Dataspace, width: u64) -> Result<u64, Error> {
    let narrow = u32::try_from(chunked.element_len).ok();
    narrow
        .filter(|_| chunked.element_len == width && chunked.shape.len() == space.shape.len())
        .and_then(|width| bytes(width, &chunked.shape))
        .ok_or(Error::Malformed {
            what: "chunks of elements of width",
            found: chunked.element_len,
        })
}

/// One element of the fill value, if all of it is equal.
fn fill(
    file: &mut Hdf5File<'_, '_>,
    object: &Object,
    element: Element,
    inner: &[u64],
) -> Result<Option<Vec<u8>>, Error> {
    if !inner.is_empty() || element.width > 64 {
        return Ok(None);
    }
    if let Some(body) = object::body(file, object, object::FILL)? {
        return Ok(filters::fill(&body, false, element.width));
    }
    let old = object::body(file, object, object::OLD_FILL)?;
    Ok(old.and_then(|body| filters::fill(&body, true, element.width)))
}
