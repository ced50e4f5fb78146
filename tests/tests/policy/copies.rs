//! Tools that copy attributes.

use std::fs;
use std::path::Path;

use shale_tests::{Case, Cmd, Mount, Outcome, ensure, ensure_eq};

use crate::{effective, field, get, listed, set, write};

fn check(copy: &Path) -> Outcome {
    let policies = [
        "trusted.shale.durability=\"sync\"",
        "user.mine=\"1\"",
        "user.shale.codec=\"zstd:3\"",
    ];
    ensure_eq!(listed(copy)?, policies, "attributes of {}", copy.display());
    ensure_eq!(
        listed(&copy.join("sub"))?,
        ["user.shale.chunk=\"4M\""],
        "of sub"
    );
    ensure_eq!(
        listed(&copy.join("sub/file"))?,
        ["user.shale.settle=\"off\""],
        "of file"
    );
    ensure_eq!(listed(&copy.join("plain"))?, [""; 0], "of a plain file");
    ensure!(
        fs::read(copy.join("sub/file"))? == field(50_000),
        "contents"
    );
    Ok(())
}

/// In ShaleFS, a copied policy is in effect there as well.
fn check_here(copy: &Path) -> Outcome {
    check(copy)?;
    ensure_eq!(
        effective(&copy.join("sub/file"), "codec")?.0,
        "zstd:3",
        "codec"
    );
    ensure_eq!(
        effective(&copy.join("sub/file"), "settle")?.0,
        "off",
        "settle"
    );
    ensure_eq!(
        effective(&copy.join("plain"), "durability")?.0,
        "sync",
        "durability"
    );
    Ok(())
}

fn tree(mount: &Mount) -> Outcome {
    let tree = mount.path().join("tree");
    fs::create_dir_all(tree.join("sub"))?;
    set(&tree, "user.shale.codec", "zstd:3")?;
    set(&tree, "trusted.shale.durability", "sync")?;
    set(&tree, "user.mine", "1")?;
    set(&tree.join("sub"), "user.shale.chunk", "4M")?;
    write(&tree.join("sub/file"), &field(50_000))?;
    write(&tree.join("plain"), b"plain")?;
    set(&tree.join("sub/file"), "user.shale.settle", "off")
}

pub(crate) fn tools(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    tree(&mount)?;
    let host = case.dir("host")?;
    let run = |script: &str| Cmd::shell(script).env("HOST", &host).cwd(mount.path()).ok();
    run("cp -a tree by-cp && cp -r --preserve=xattr tree by-xattr")?;
    run("rsync -aX tree/ by-rsync")?;
    run("tar --xattrs --xattrs-include='*' -cf $HOST/tree.tar tree
         mkdir new && tar --xattrs --xattrs-include='*' -C new -xf $HOST/tree.tar
         mv new/tree by-tar && rmdir new")?;
    for copy in ["by-cp", "by-xattr", "by-rsync", "by-tar"] {
        check_here(&mount.path().join(copy))?;
    }
    // Again over what is there: nothing piles up, and what the source lost goes.
    run(
        "setfattr -x user.mine tree && setfattr -n user.mine -v 1 tree
         setfattr -n user.shale.effort -v dense by-rsync && rsync -aX --delete tree/ by-rsync",
    )?;
    check_here(&mount.path().join("by-rsync"))?;
    // To another file system and back, where it keeps such attributes.
    run("cp -a tree $HOST/tree && rsync -aX $HOST/tree/ from-host")?;
    check(&host.join("tree"))?;
    check_here(&mount.path().join("from-host"))?;
    for path in ["tree", "by-cp", "by-rsync/sub/file"] {
        for virtual_one in ["effective", "stat", "settle.now", "gc.now"] {
            let list = listed(&mount.path().join(path))?;
            let name = format!("user.shale.{virtual_one}");
            ensure!(!list.iter().any(|line| line.starts_with(&name)), "{list:?}");
        }
    }
    ensure!(
        get(&host.join("tree"), "user.shale.effective").is_err(),
        "effective was copied"
    );
    mount.remount()?;
    check_here(&mount.path().join("by-tar"))?;
    mount.unmount()?;
    mount.fsck_is_clean()
}
