//! A file system of a given size in an image file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::mount::{MntFlags, umount2};

use crate::{Cmd, Context, Outcome};

/// The file system to create on the loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopFs {
    /// ext4, without reserved blocks.
    Ext4,
    /// btrfs with zstd compression.
    Btrfs,
    /// XFS, which needs 300 MiB.
    Xfs,
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
    /// Creates `work/NAME.img` of `size` bytes and mounts it on `work/NAME`.
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
            LoopFs::Xfs => {
                Cmd::new("mkfs.xfs").args(["-q", "-f"]).arg(&image).ok()?;
                "rw"
            }
        };
        Loop::mount(image, mountpoint, options)
    }

    /// The state after a power cut now: a copy of the image on `work/NAME`. The image must be on a
    /// file system that clones files, so that the copy is of one moment.
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

    /// The device dies: everything fails from now on, and data that was not durable is lost.
    pub fn die(&self) -> Outcome {
        Cmd::new(crate::python())
            .arg(crate::script("shut_down.py"))
            .arg(&self.mountpoint)
            .ok()?;
        Ok(())
    }

    /// Unmounts it lazily: open files stay usable.
    pub fn detach(&mut self) -> Outcome {
        umount2(&self.mountpoint, MntFlags::MNT_DETACH)?;
        self.mounted = false;
        Ok(())
    }

    /// Unmounts it if it is mounted, and mounts it once more: a device that came back.
    pub fn mount_again(&mut self) -> Outcome {
        if self.mounted {
            umount2(&self.mountpoint, MntFlags::empty())?;
            self.mounted = false;
        }
        Cmd::new("mount")
            .arg(&self.device)
            .arg(&self.mountpoint)
            .ok()?;
        self.mounted = true;
        Ok(())
    }

    /// Makes writers wait until the result is dropped.
    pub fn freeze(&self) -> Outcome<Frozen> {
        Frozen::new(&self.mountpoint)
    }

    /// Limits reads and writes of the device, in bytes per second, until the result is dropped.
    pub fn slow_down(&self, rate: u64) -> Outcome<Slow> {
        let name = self.device.file_name().unwrap_or_default();
        let number = std::fs::read_to_string(Path::new("/sys/block").join(name).join("dev"))?;
        let slow = Slow {
            number: number.trim().into(),
        };
        slow.limit(rate)?;
        Ok(slow)
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
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// A file system whose writers wait, for a minute at most.
#[derive(Debug)]
pub struct Frozen {
    helper: Child,
}

/// A single process that was started before does all of it: a new one would first close the files
/// of this one, and so wait for the threads that it should help.
const FREEZE: &str = "fsfreeze -f $0 && echo frozen && timeout 60 cat; fsfreeze -u $0";

impl Frozen {
    fn new(mountpoint: &Path) -> Outcome<Self> {
        let mut helper = Command::new("sh")
            .args(["-c", FREEZE])
            .arg(mountpoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = [0; 7];
        let output = helper.stdout.as_mut().doing("the output of the helper")?;
        output.read_exact(&mut said).doing("freezing")?;
        Ok(Frozen { helper })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
    }
}

/// Where the rate of devices is limited.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle";

pub(crate) fn can_slow_down() -> bool {
    let file = format!("{THROTTLE}.write_bps_device");
    nix::unistd::access(&*file, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// A device that answers slowly.
#[derive(Debug)]
pub struct Slow {
    number: String,
}

impl Slow {
    fn limit(&self, rate: u64) -> Outcome {
        for way in ["read", "write"] {
            let file = format!("{THROTTLE}.{way}_bps_device");
            std::fs::write(file, format!("{} {rate}", self.number))?;
        }
        Ok(())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.limit(0);
    }
}
