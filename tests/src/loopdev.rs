//! A file system of a given size in an image file.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use crate::{Cmd, Outcome};

/// What to make on the loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopFs {
    /// ext4, without reserved blocks.
    Ext4,
    /// btrfs with zstd compression.
    Btrfs,
}

/// A loop device with a mounted file system; gone when dropped.
#[derive(Debug)]
pub struct Loop {
    image: PathBuf,
    device: PathBuf,
    mountpoint: PathBuf,
    mounted: bool,
}

impl Loop {
    /// Makes `work/NAME.img` of `size` bytes and mounts it on `work/NAME`.
    pub fn new(work: &Path, name: &str, kind: LoopFs, size: u64) -> Outcome<Loop> {
        let image = work.join(format!("{name}.img"));
        let mountpoint = work.join(name);
        std::fs::create_dir(&mountpoint)?;
        std::fs::File::create(&image)?.set_len(size)?;
        let options = match kind {
            LoopFs::Ext4 => {
                Cmd::new("mkfs.ext4")
                    .args(["-q", "-F", "-m", "0"])
                    .arg(&image)
                    .ok()?;
                "rw"
            }
            LoopFs::Btrfs => {
                Cmd::new("mkfs.btrfs").args(["-q", "-f"]).arg(&image).ok()?;
                "compress=zstd"
            }
        };
        Loop::mount(image, mountpoint, options)
    }

    /// What would be there after a power cut now: a copy of the image on `work/NAME`. The image
    /// must be on a file system that clones files, so that the copy is of one moment.
    pub fn after_power_cut(&self, work: &Path, name: &str) -> Outcome<Loop> {
        let image = self.image.with_file_name(format!("{name}.img"));
        let mountpoint = work.join(name);
        std::fs::create_dir(&mountpoint)?;
        Cmd::new("cp")
            .arg("--reflink=always")
            .arg(&self.image)
            .arg(&image)
            .ok()?;
        Loop::mount(image, mountpoint, "rw")
    }

    fn mount(image: PathBuf, mountpoint: PathBuf, options: &str) -> Outcome<Loop> {
        let device = Cmd::new("losetup")
            .args(["--find", "--show"])
            .arg(&image)
            .ok()?;
        let mut made = Loop {
            image,
            device: device.trim().into(),
            mountpoint,
            mounted: false,
        };
        Cmd::new("mount")
            .args(["-o", options])
            .arg(&made.device)
            .arg(&made.mountpoint)
            .ok()?;
        made.mounted = true;
        Ok(made)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Remounts it read-only or writable again.
    pub fn read_only(&self, read_only: bool) -> Outcome {
        let option = if read_only {
            "remount,ro"
        } else {
            "remount,rw"
        };
        Cmd::new("mount")
            .args(["-o", option])
            .arg(&self.mountpoint)
            .ok()?;
        Ok(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if self.mounted && umount2(&self.mountpoint, MntFlags::empty()).is_err() {
            let _ = umount2(&self.mountpoint, MntFlags::MNT_DETACH);
        }
        let _ = std::process::Command::new("losetup")
            .arg("-d")
            .arg(&self.device)
            .status();
    }
}
