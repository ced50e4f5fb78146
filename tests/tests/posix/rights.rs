//! Owners, permissions and ACLs.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use shale_tests::{Case, Cmd, Outcome, ensure, ensure_eq};

const NOBODY: u32 = 65_534;
const OTHER: u32 = 12_345;

fn mode(path: &Path) -> Outcome<u32> {
    Ok(fs::metadata(path)?.mode() & 0o7777)
}

fn chmod(path: &Path, mode: u32) -> Outcome {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Runs a script with `$F` set to a path as another user; returns whether it succeeded.
fn may(user: u32, script: &str, path: &Path) -> Outcome<bool> {
    Ok(Cmd::shell(script)
        .env("F", path)
        .user(user, user)
        .run()?
        .status
        .success())
}

fn acl(path: &Path) -> Outcome<Vec<String>> {
    let text = Cmd::new("getfacl")
        .args(["--absolute-names", "--omit-header", "--numeric"])
        .arg(path)
        .ok()?;
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .trim()
                .to_string()
        })
        .filter(|line| !line.is_empty())
        .collect();
    lines.sort();
    Ok(lines)
}

pub(crate) fn default_acl_is_inherited(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let top = fs.at("project");
    fs::create_dir(&top)?;
    Cmd::new("setfacl")
        .args([
            "-m",
            "u:12345:rwx,g:54321:r-x,d:u:12345:rwx,d:g:54321:r-x,d:o::---",
        ])
        .arg(&top)
        .ok()?;
    Cmd::shell("umask 077; mkdir \"$D/sub\"; echo x > \"$D/file\"; mkfifo \"$D/fifo\"; ln -s file \"$D/link\"; mkdir \"$D/sub/deeper\"")
        .env("D", &top)
        .ok()?;
    for round in ["before", "after"] {
        let directory = [
            "default:group:54321:r-x",
            "default:group::r-x",
            "default:mask::rwx",
            "default:other::---",
            "default:user:12345:rwx",
            "default:user::rwx",
            "group:54321:r-x",
            "group::r-x",
            "mask::rwx",
            "other::---",
            "user:12345:rwx",
            "user::rwx",
        ];
        ensure_eq!(
            acl(&top.join("sub"))?,
            directory,
            "ACL of a subdirectory {round} the remount"
        );
        ensure_eq!(
            acl(&top.join("sub/deeper"))?,
            directory,
            "ACL two levels down {round} the remount"
        );
        // The umask does not count where a default ACL exists; the mode of creat() does.
        let file = [
            "group:54321:r-x",
            "group::r-x",
            "mask::rw-",
            "other::---",
            "user:12345:rwx",
            "user::rw-",
        ];
        ensure_eq!(
            acl(&top.join("file"))?,
            file,
            "ACL of a file {round} the remount"
        );
        ensure_eq!(
            acl(&top.join("fifo"))?,
            file,
            "ACL of a fifo {round} the remount"
        );
        ensure_eq!(
            mode(&top.join("file"))?,
            0o660,
            "mode of a file: the group bits show the mask"
        );
        if round == "before" {
            fs.refresh()?;
        }
    }
    Cmd::new("setfacl").args(["-k"]).arg(&top).ok()?;
    ensure!(
        !acl(&top)?.iter().any(|line| line.starts_with("default")),
        "the default ACL was not removed"
    );
    Cmd::shell("umask 077; echo x > \"$D/later\"")
        .env("D", &top)
        .ok()?;
    ensure_eq!(
        mode(&top.join("later"))?,
        0o600,
        "mode without a default ACL"
    );
    fs.finish()
}

pub(crate) fn acl_decides_access(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("file");
    fs::write(&path, b"secret\n")?;
    chmod(&path, 0o600)?;
    let (read, write) = ("cat \"$F\" > /dev/null", "echo x >> \"$F\"");
    ensure!(!may(OTHER, read, &path)?, "mode 0600 lets others read");
    Cmd::new("setfacl")
        .args(["-m", "u:12345:r--"])
        .arg(&path)
        .ok()?;
    ensure!(
        may(OTHER, read, &path)?,
        "an ACL entry does not give access"
    );
    ensure!(
        !may(OTHER, write, &path)?,
        "a read-only ACL entry lets write"
    );
    ensure!(
        !may(NOBODY, read, &path)?,
        "an ACL entry gives access to another user"
    );
    Cmd::new("setfacl")
        .args(["-m", "u:12345:rw-"])
        .arg(&path)
        .ok()?;
    ensure!(may(OTHER, write, &path)?, "an ACL entry does not let write");
    chmod(&path, 0o640)?;
    ensure!(
        acl(&path)?.contains(&"mask::r--".to_string()),
        "chmod did not change the mask: {:?}",
        acl(&path)?
    );
    ensure!(
        !may(OTHER, write, &path)?,
        "the mask does not limit an ACL entry"
    );
    ensure!(may(OTHER, read, &path)?, "the mask takes too much");
    Cmd::new("setfacl").args(["-b"]).arg(&path).ok()?;
    ensure_eq!(
        acl(&path)?,
        ["group::---", "other::---", "user::rw-"],
        "ACL after removing it"
    );
    ensure!(
        !may(OTHER, read, &path)?,
        "a removed ACL still gives access"
    );
    ensure_eq!(fs::read(&path)?, b"secret\nx\n", "contents");
    fs.finish()
}

pub(crate) fn setid_bits_are_cleared(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("program");
    fs::write(&path, b"x")?;
    chown(&path, Some(OTHER), Some(OTHER))?;
    chmod(&path, 0o6777)?;
    ensure_eq!(mode(&path)?, 0o6777, "as set");
    ensure!(
        may(NOBODY, "echo y >> \"$F\"", &path)?,
        "a world-writable file cannot be written"
    );
    ensure_eq!(mode(&path)?, 0o777, "after a write by another user");

    chmod(&path, 0o6777)?;
    ensure!(
        may(NOBODY, "truncate -s 1 \"$F\"", &path)?,
        "a world-writable file cannot be truncated"
    );
    ensure_eq!(mode(&path)?, 0o777, "after a truncation by another user");

    for way in ["-l 100k", "-n -l 200k", "-p -l 4k", "-z -l 4k"] {
        chmod(&path, 0o6777)?;
        ensure!(
            may(NOBODY, &format!("fallocate {way} \"$F\""), &path)?,
            "fallocate {way} of a world-writable file fails"
        );
        ensure_eq!(mode(&path)?, 0o777, "after fallocate {way} by another user");
    }

    chmod(&path, 0o6777)?;
    chown(&path, Some(OTHER), Some(OTHER + 1))?;
    ensure_eq!(mode(&path)?, 0o777, "after chown");

    // Without group execution the bit means something else and stays; reading changes nothing.
    chmod(&path, 0o2767)?;
    chown(&path, Some(OTHER), Some(OTHER))?;
    ensure_eq!(
        mode(&path)?,
        0o2767,
        "setgid without group execution after chown"
    );
    chmod(&path, 0o6777)?;
    ensure!(
        may(NOBODY, "cat \"$F\" > /dev/null", &path)?,
        "a world-readable file cannot be read"
    );
    ensure_eq!(mode(&path)?, 0o6777, "after a read");
    // Root keeps them: it has CAP_FSETID.
    fs::write(&path, b"by root")?;
    ensure_eq!(mode(&path)?, 0o6777, "after a write by root");
    // A directory keeps them, too.
    let directory = fs.at("directory");
    fs::create_dir(&directory)?;
    chmod(&directory, 0o2775)?;
    chown(&directory, Some(OTHER), Some(OTHER))?;
    ensure_eq!(mode(&directory)?, 0o2775, "a directory after chown");
    fs.finish()
}

/// Any way of writing to a program drops its capabilities.
pub(crate) fn capabilities_are_dropped(case: &Case) -> Outcome {
    // Version 2, effective, CAP_NET_RAW.
    let mut value = [0; 20];
    value[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
    for options in [&[][..], &["-o", "direct_io"][..]] {
        let fs = case.fs_with(options)?;
        let path = fs.at("program");
        fs::write(&path, b"x")?;
        let name = "security.capability";
        rustix::fs::setxattr(&path, name, &value, rustix::fs::XattrFlags::empty())?;
        let length = |path: &Path| rustix::fs::getxattr(path, name, &mut [0u8; 64][..]);
        ensure_eq!(length(&path)?, 20, "{options:?}: as set");
        fs::OpenOptions::new()
            .append(true)
            .open(&path)?
            .write_all(b"y")?;
        ensure_eq!(
            length(&path).err(),
            Some(rustix::io::Errno::NODATA),
            "{options:?}: after a write"
        );
        fs.finish()?;
    }
    Ok(())
}

pub(crate) fn setgid_directory(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let shared = fs.at("shared");
    fs::create_dir(&shared)?;
    chown(&shared, Some(0), Some(777))?;
    chmod(&shared, 0o2777)?;
    ensure!(
        may(
            NOBODY,
            "umask 0; mkdir \"$F/sub\"; echo x > \"$F/file\"; echo x > \"$F/sub/deep\"",
            &shared
        )?,
        "cannot create"
    );
    for (name, setgid) in [("sub", 0o2000), ("file", 0), ("sub/deep", 0)] {
        let meta = fs::metadata(shared.join(name))?;
        ensure_eq!(meta.uid(), NOBODY, "owner of {name}");
        ensure_eq!(meta.gid(), 777, "group of {name}");
        ensure_eq!(meta.mode() & 0o2000, setgid, "setgid of {name}");
    }
    let plain = fs.at("plain");
    fs::create_dir(&plain)?;
    chown(&plain, Some(0), Some(777))?;
    chmod(&plain, 0o777)?;
    ensure!(
        may(NOBODY, "echo x > \"$F/file\"", &plain)?,
        "cannot create"
    );
    ensure_eq!(
        fs::metadata(plain.join("file"))?.gid(),
        NOBODY,
        "group in a plain directory"
    );
    fs.finish()
}

pub(crate) fn sticky_directory(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let top = fs.at("tmp");
    fs::create_dir(&top)?;
    chmod(&top, 0o1777)?;
    let path = top.join("file");
    fs::write(&path, b"x")?;
    chown(&path, Some(OTHER), Some(OTHER))?;
    chmod(&path, 0o666)?;
    ensure!(
        !may(NOBODY, "rm -f \"$F\"", &path)?,
        "another user may delete in a sticky directory"
    );
    ensure!(
        !may(NOBODY, "mv \"$F\" \"$F.moved\"", &path)?,
        "another user may rename in a sticky directory"
    );
    ensure!(
        !may(
            NOBODY,
            "cd \"${F%/*}\"; echo y > mine; mv -f mine \"$F\"",
            &path
        )?,
        "another user may replace"
    );
    ensure!(path.exists(), "the file is gone");
    ensure!(
        // Without O_CREAT, which fs.protected_regular forbids here.
        may(
            NOBODY,
            "echo more | dd of=\"$F\" oflag=append conv=notrunc,nocreat",
            &path
        )?,
        "another user may not write a file of mode 0666"
    );
    ensure!(
        may(OTHER, "mv \"$F\" \"$F.moved\" && rm \"$F.moved\"", &path)?,
        "the owner may not"
    );
    chmod(&top, 0o777)?;
    fs::write(&path, b"x")?;
    ensure!(
        may(NOBODY, "rm -f \"$F\"", &path)?,
        "without the sticky bit the directory's mode decides"
    );
    fs.finish()
}
