//! Tools of the machine for tests: commands, loop devices, cgroups.

pub(crate) mod cgroup;
pub(crate) mod cmd;
pub(crate) mod loop_device;
