//! placeholder
use crate::Error;
#[derive(Debug)]
pub(crate) struct Catalog {}
impl Catalog {
    pub(crate) fn flush(&self, _sync: bool) -> Result<(), Error> {
        Ok(())
    }
}
