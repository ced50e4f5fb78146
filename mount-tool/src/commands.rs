//! One file for each command: its arguments, its help, and its work.

pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod export;
pub(crate) mod fsck;
pub(crate) mod gc;
pub(crate) mod generate;
pub(crate) mod layout;
pub(crate) mod mount;
pub(crate) mod policy;
pub(crate) mod settle;
pub(crate) mod stat;
pub(crate) mod top;
pub(crate) mod unmount;
