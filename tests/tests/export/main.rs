//! `shale export`: everything comes out as it went in, from a mount and from a store that is not
//! mounted; nothing is overwritten, an interrupted export resumes, damage is named.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Finished, LoopFs, Mount, Need, Outcome, Rng, Sample, Suite, binary, ensure,
    ensure_eq, read_tree, same_trees, shale,
};

fn main() -> ExitCode {
    Suite::new("export")
        .need(Need::Shale)
        .need(Need::Command("setfacl"))
        .limit(Duration::from_secs(180))
        .test("a_tree_of_a_mount_comes_out_as_it_is", from_a_mount)
        .test("a_store_comes_out_without_being_mounted", from_a_store)
        .test(
            "a_store_on_a_read_only_device_comes_out",
            from_a_read_only_device,
        )
        .test("a_store_of_a_killed_daemon_comes_out", from_a_killed_daemon)
        .test("a_copy_has_no_lists_of_its_new_place", no_inheritance)
        .test("one_file_or_directory_of_a_store", part_of_a_store)
        .test("a_mounted_store_leads_to_its_mount", mounted_store)
        .test("unsuitable_destinations_are_refused", no_place)
        .test("nothing_is_overwritten_unless_asked", nothing_overwritten)
        .test("an_interrupted_export_resumes", interrupted)
        .test("damaged_files_are_named_and_can_be_salvaged", damaged)
        .test("an_ordinary_user_exports_what_it_may_read", ordinary_user)
        .run()
}

/// A mount with everything in it, access control lists too.
fn filled(case: &Case) -> Outcome<Mount> {
    let mount = case.mount("fs", &["-o", "dev,suid"])?;
    let top = mount.path().join("tree");
    fs::create_dir(&top)?;
    Sample::new(7).create(&top)?;
    let file = top.join("plain/noise-4");
    let directory = top.join("names");
    Cmd::new("setfacl")
        .args(["-m", "u:1234:rw,g:99:r"])
        .arg(&file)
        .ok()?;
    Cmd::new("setfacl")
        .args(["-d", "-m", "u:1234:rwx"])
        .arg(&directory)
        .ok()?;
    Ok(mount)
}

fn export(arguments: &[&dyn AsRef<Path>]) -> Outcome<Finished> {
    let line = shale().args(["export", "--json"]);
    line.args(arguments.iter().map(|path| path.as_ref().as_os_str()))
        .run()
}

fn report(finished: &Finished) -> Outcome<Value> {
    serde_json::from_slice(&finished.stdout).doing(finished.describe())
}

fn from_a_mount(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let (tree, copy) = (mount.path().join("tree"), case.work().join("copy"));
    let finished = export(&[&tree, &copy])?.success()?;
    same_trees(&read_tree(&copy)?, &read_tree(&tree)?)?;
    let value = report(&finished)?;
    ensure!(value["problems"] == serde_json::json!([]), "{value}");
    ensure!(
        value["missed_attributes"] == serde_json::json!([]),
        "{value}"
    );
    let blocks = fs::metadata(copy.join("plain/sparse"))?.blocks();
    ensure!(blocks * 512 < 1 << 20, "the hole has {blocks} blocks");
    // ShaleFS's own attributes mean nothing elsewhere.
    let listed = Cmd::new("getfattr")
        .args(["-R", "-h", "-m", "-"])
        .arg(&copy);
    let listed = listed.ok()?;
    ensure!(listed.contains("user.some"), "{listed}");
    ensure!(!listed.contains(".shale."), "{listed}");
    mount.unmount()
}

fn from_a_store(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let expected = read_tree(mount.path())?;
    mount.unmount()?;
    let before = read_tree(mount.store())?;
    let copy = case.work().join("copy");
    export(&[&mount.store(), &copy])?.success()?;
    same_trees(&read_tree(&copy)?, &expected)?;
    same_trees(&read_tree(mount.store())?, &before)
}

fn from_a_read_only_device(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 256 << 20)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &[])?;
    Sample::new(8).create(&{
        let top = mount.path().join("tree");
        fs::create_dir(&top)?;
        top
    })?;
    shale().args(["settle", "--wait"]).arg(mount.path()).ok()?;
    let expected = read_tree(mount.path())?;
    mount.unmount()?;
    device.read_only(true)?;
    let copy = case.work().join("copy");
    export(&[&mount.store(), &copy])?.success()?;
    same_trees(&read_tree(&copy)?, &expected)
}

fn from_a_killed_daemon(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let file = mount.path().join("file");
    fs::write(&file, Rng::new(1).bytes(3_000_000))?;
    File::open(&file)?.sync_all()?;
    mount.kill9()?;
    mount.detach();
    let copy = case.work().join("copy");
    export(&[&mount.store(), &copy])?.success()?;
    ensure_eq!(
        fs::read(copy.join("file"))?,
        Rng::new(1).bytes(3_000_000),
        "contents"
    );
    Ok(())
}

fn part_of_a_store(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let expected = read_tree(&mount.path().join("tree/plain"))?;
    mount.unmount()?;
    let copy = case.work().join("copy");
    export(&[&"--only", &"tree/plain", &mount.store(), &copy])?.success()?;
    // One file there has its other names outside, so that its copy has one name.
    let inside = |mut tree: std::collections::BTreeMap<_, _>| {
        tree.retain(|path, _| path != Path::new("deep/three"));
        tree
    };
    same_trees(&inside(read_tree(&copy)?), &inside(expected))?;
    let directory = case.dir("files")?;
    export(&[
        &"--only",
        &"/tree/plain/noise-3",
        &mount.store(),
        &directory,
    ])?
    .success()?;
    ensure!(
        directory.join("noise-3").is_file(),
        "not put into the directory"
    );
    let finished = export(&[&"--only", &"tree/none", &mount.store(), &directory])?;
    ensure!(
        finished.status_is(66)?.stderr.contains("has no tree/none"),
        "message"
    );
    let finished = export(&[&"--only", &"../tree", &mount.store(), &directory])?;
    finished.status_is(64)?;
    Ok(())
}

/// In the store itself, and what `--only` must not reach.
fn no_place(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("file"), b"contents")?;
    let inside = mount.store().join("packs/copy");
    let finished = export(&[&mount.path(), &inside])?.status_is(73)?;
    ensure!(
        finished.stderr.contains("inside the store"),
        "{}",
        finished.describe()
    );
    ensure!(!inside.exists(), "something was copied into the store");
    let copy = case.work().join("copy");
    for only in ["../file", "file/../../x"] {
        export(&[&"--only", &only, &mount.path(), &copy])?.status_is(64)?;
    }
    export(&[&"--only", &"/etc/passwd", &mount.path(), &copy])?.status_is(66)?;
    ensure!(!copy.exists(), "something was copied");
    export(&[&"--only", &"/file", &mount.path(), &copy])?.success()?;
    ensure_eq!(fs::read(&copy)?, b"contents");
    mount.unmount()
}

fn mounted_store(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let finished = export(&[&mount.store(), &case.work().join("copy")])?.status_is(75)?;
    let mountpoint = mount.path().display().to_string();
    ensure!(
        finished.stderr.contains(&mountpoint),
        "{}",
        finished.describe()
    );
    let inside = mount.path().join("inside");
    fs::write(mount.path().join("file"), b"x")?;
    let finished = export(&[&mount.path(), &inside])?.status_is(73)?;
    ensure!(
        finished.stderr.contains("inside the directory to export"),
        "{}",
        finished.describe()
    );
    mount.unmount()?;
    export(&[&mount.store(), &mount.store().join("copy")])?.status_is(73)?;
    mount.fsck_is_clean()
}

fn nothing_overwritten(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("a"), b"from the mount")?;
    fs::write(mount.path().join("b"), b"second")?;
    let copy = case.dir("copy")?;
    fs::write(copy.join("a"), b"precious")?;
    fs::write(copy.join("other"), b"mine")?;
    let finished = export(&[&mount.path(), &copy])?.status_is(73)?;
    let value = report(&finished)?;
    ensure_eq!(
        value["problems"].as_array().map(Vec::len),
        Some(1),
        "{value}"
    );
    let message = value["problems"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("--force"), "{value}");
    ensure_eq!(
        fs::read(copy.join("a"))?,
        b"precious",
        "the file in the way"
    );
    ensure_eq!(fs::read(copy.join("b"))?, b"second", "the rest is copied");
    export(&[&"--force", &mount.path(), &copy])?.success()?;
    ensure_eq!(
        fs::read(copy.join("a"))?,
        b"from the mount",
        "replaced when asked"
    );
    ensure_eq!(fs::read(copy.join("other"))?, b"mine", "what is only there");
    fs::remove_file(copy.join("b"))?;
    fs::create_dir(copy.join("b"))?;
    export(&[&"--force", &mount.path(), &copy])?.status_is(73)?;
    ensure!(copy.join("b").is_dir(), "a directory is never replaced");
    mount.unmount()
}

fn interrupted(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let (tree, copy) = (mount.path().join("tree"), case.work().join("copy"));
    export(&[&tree, &copy])?.success()?;
    let expected = read_tree(&copy)?;
    // As an interrupted one leaves it: some files missing, directories closed already.
    fs::remove_file(copy.join("plain/noise-9"))?;
    fs::remove_file(copy.join("links/two"))?;
    let inode = fs::metadata(copy.join("plain/noise-8"))?.ino();
    let value = report(&export(&[&tree, &copy])?.success()?)?;
    ensure_eq!(value["files"], 1, "files copied again: {value}");
    ensure!(value["present"].as_u64() > Some(20), "{value}");
    ensure_eq!(
        fs::metadata(copy.join("plain/noise-8"))?.ino(),
        inode,
        "the same file"
    );
    same_trees(&read_tree(&copy)?, &expected)?;

    // And a real one: killed in the middle, then repeated.
    fs::write(tree.join("large"), Rng::new(5).bytes(60 << 20))?;
    let child = shale().arg("export").arg(&tree).arg(&copy).spawn()?;
    let pid = child.id() as i32;
    let begun = std::time::Instant::now();
    let half = |name: &str| name.starts_with(".shale-export-");
    loop {
        let mut names = fs::read_dir(&copy)?.flatten().map(|e| e.file_name());
        if names.any(|name| half(&name.to_string_lossy())) || copy.join("large").exists() {
            break;
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing is copied"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    Cmd::new("kill").args(["-9", &pid.to_string()]).run()?;
    let mut child = child;
    child.wait()?;
    export(&[&tree, &copy])?.success()?;
    same_trees(&read_tree(&copy)?, &read_tree(&tree)?)?;
    mount.unmount()
}

fn damaged(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let good = Rng::new(1).bytes(3 << 20);
    let bad = Rng::new(2).bytes(8 << 20);
    fs::write(mount.path().join("good"), &good)?;
    File::open(mount.path().join("good"))?.sync_all()?;
    fs::write(mount.path().join("worse"), &bad)?;
    mount.unmount()?;
    // Noise is stored as it is, so the place of a part of it can be found.
    let marker = &bad[(5 << 20) + 1000..(5 << 20) + 1064];
    let mut hurt = 0;
    for (path, entry) in read_tree(&mount.store().join("packs"))? {
        if entry.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        let path = mount.store().join("packs").join(path);
        let bytes = fs::read(&path)?;
        for at in (0..bytes.len().saturating_sub(64)).filter(|&at| &bytes[at..at + 64] == marker) {
            let file = File::options().write(true).open(&path)?;
            file.write_all_at(&[bytes[at] ^ 1], at as u64)?;
            hurt += 1;
        }
    }
    ensure!(hurt > 0, "the frame was not found");
    let copy = case.work().join("copy");
    let finished = export(&[&mount.store(), &copy])?.status_is(74)?;
    let value = report(&finished)?;
    ensure_eq!(
        value["problems"].as_array().map(Vec::len),
        Some(1),
        "{value}"
    );
    ensure_eq!(fs::read(copy.join("good"))?, good, "the other file");
    ensure_eq!(
        fs::read_dir(&copy)?.count(),
        1,
        "no damaged file, no temporary one"
    );
    let finished = export(&[&"--salvage", &mount.store(), &copy])?.status_is(74)?;
    let value = report(&finished)?;
    let message = value["problems"][0]["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("could not be read and are zeros"),
        "{value}"
    );
    let saved = fs::read(copy.join("worse"))?;
    ensure_eq!(saved.len(), bad.len(), "length");
    let differing = saved.iter().zip(&bad).filter(|(a, b)| a != b).count();
    ensure!(
        (1..=1 << 20).contains(&differing),
        "{differing} bytes differ"
    );
    let lost = saved
        .iter()
        .zip(&bad)
        .position(|(a, b)| a != b)
        .unwrap_or(0);
    ensure!(
        (4 << 20..6 << 20).contains(&lost),
        "the loss begins at {lost}"
    );
    // What is there is not what is in the store, in any later run.
    for arguments in [&[][..], &["--salvage"]] {
        let line = shale().args(["export", "--json"]).args(arguments);
        let finished = line.arg(mount.store()).arg(&copy).run()?.status_is(73)?;
        let value = report(&finished)?;
        ensure_eq!(value["present"], 1, "only the good file: {value}");
        let message = value["problems"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("worse already exists"), "{value}");
    }
    export(&[&"--salvage", &"--force", &mount.store(), &copy])?.status_is(74)?;
    Ok(())
}

fn ordinary_user(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("open"), b"for all")?;
    fs::write(mount.path().join("closed"), b"secret")?;
    fs::set_permissions(mount.path().join("closed"), Permissions::from_mode(0o600))?;
    let program = case.work().join("shale");
    fs::copy(binary(), &program)?;
    let home = case.dir("home")?;
    fs::set_permissions(&home, Permissions::from_mode(0o777))?;
    let copy = home.join("copy");
    let finished = Cmd::new(&program)
        .arg("export")
        .arg(mount.path())
        .arg(&copy)
        .user(65_534, 65_534)
        .run()?
        .status_is(77)?;
    ensure!(
        finished.text().contains("closed"),
        "{}",
        finished.describe()
    );
    ensure_eq!(fs::read(copy.join("open"))?, b"for all", "what it may read");
    ensure_eq!(
        fs::metadata(copy.join("open"))?.uid(),
        65_534,
        "its own file"
    );
    ensure!(!copy.join("closed").exists(), "a file it may not read");
    mount.unmount()
}

/// A directory with a default ACL would grant access that the original does not.
fn no_inheritance(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let target = case.dir("target")?;
    Cmd::new("setfacl")
        .args(["-d", "-m", "u:4321:rwx"])
        .arg(&target)
        .ok()?;
    let tree = mount.path().join("tree");
    export(&[&tree, &target.join("copy")])?.success()?;
    same_trees(&read_tree(&target.join("copy"))?, &read_tree(&tree)?)?;
    let lists = |path: &Path| {
        Cmd::shell("find . ! -type l -print0 | sort -z | xargs -0 getfacl -n")
            .cwd(path)
            .ok()
    };
    ensure_eq!(lists(&target.join("copy"))?, lists(&tree)?, "the lists");
    mount.unmount()
}
