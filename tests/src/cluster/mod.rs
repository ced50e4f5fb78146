//! Clusters of metadata servers on this machine, and what can happen on the way to them.

pub(crate) mod certificates;
pub(crate) mod etcd;
pub(crate) mod proxy;
