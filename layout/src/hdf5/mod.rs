use crate::{Error, builder::Builder, parse::Outcome, reader::Reader};
pub(crate) fn parse(_: &mut Reader<'_>, _: &mut Builder, _base: u64) -> Result<Outcome, Error> {
    Err(Error::NotRecognised)
}
