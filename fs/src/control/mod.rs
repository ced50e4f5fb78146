//! Reports and requests of a mount through extended attributes.
//!
//! ```text
//! attributes  the virtual attributes that report
//! requests    the attributes that are requests when they are set
//! damage      files whose data could not be read
//! ```

mod attributes;
mod damage;
mod requests;
