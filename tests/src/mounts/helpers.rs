//! ShaleFS installed, as far as mount(8) and umount(8) can see.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::{Case, Cmd, Context, Outcome, binary};

/// Where mount(8) looks for helpers.
const HELPERS: &str = "/usr/sbin";

/// Gives the test a mount namespace of its own, in which the helpers are installed and `/run` is
/// empty. The machine stays as it is. Returns the command where every user can run it.
pub fn install_helpers(case: &Case) -> Outcome<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNS).doing("making a mount namespace")?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    let layer = case.dir("helpers")?;
    for place in [Path::new("/run"), &layer] {
        Cmd::new("mount")
            .args(["-n", "-t", "tmpfs", "tmpfs"])
            .arg(place)
            .ok()?;
    }
    let (upper, work) = (layer.join("upper"), layer.join("work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let options = format!(
        "lowerdir={HELPERS},upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    Cmd::new("mount")
        .args(["-n", "-t", "overlay", "overlay", HELPERS, "-o", &options])
        .ok()?;
    // The build directory may be closed to others.
    let command = layer.join("shale");
    fs::File::create(&command)?;
    Cmd::new("mount")
        .args(["-n", "--bind"])
        .arg(binary())
        .arg(&command)
        .ok()?;
    for helper in ["mount.fuse.shale", "umount.fuse.shale"] {
        symlink(&command, Path::new(HELPERS).join(helper))?;
    }
    Ok(command)
}
