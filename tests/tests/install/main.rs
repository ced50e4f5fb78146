//! `make install`, `make uninstall` and `make deb`: everything arrives where it belongs, works
//! from there, and goes away again. Manual pages and completions are without flaws.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Context, Need, Outcome, Suite, binary, ensure, ensure_eq, read_tree, root, script,
    shale,
};

fn main() -> ExitCode {
    Suite::new("install")
        .need(Need::Shale)
        .need(Need::Command("make"))
        .need(Need::Command("man"))
        .need(Need::Command("mandoc"))
        .need(Need::Command("dpkg-deb"))
        .need(Need::Command("strip"))
        .limit(Duration::from_secs(180))
        .test("make_install_puts_everything_in_its_place", in_place)
        .test("make_uninstall_leaves_nothing", uninstall)
        .test("manual_pages_have_no_flaws", manual)
        .test("completions_complete", completions)
        .test("make_says_what_is_missing", missing)
        .test("sudo_make_uses_the_toolchain_of_the_user", sudo)
        .test(
            "tests_without_root_skip_what_they_cannot_install",
            without_root,
        )
        .test("the_package_installs_works_and_leaves_nothing", package)
        .run()
}

/// `make` with everything that it makes below the directory of the test.
fn make(case: &Case, target: &str) -> Cmd {
    let work = case.work().display();
    Cmd::new("make")
        .cwd(root())
        .args(["--no-print-directory", "-s", target])
        .arg(format!("SHALE={}", binary().display()))
        .arg(format!("TARGET={work}/target"))
        .arg(format!("DESTDIR={work}/tree"))
}

fn tree(case: &Case) -> PathBuf {
    case.work().join("tree")
}

fn commands() -> Outcome<Vec<String>> {
    let help = shale().arg("--help").ok()?;
    let list = help.split("Commands:\n").nth(1).doing("reading the help")?;
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    Ok(names.map(str::to_owned).collect())
}

fn in_place(case: &Case) -> Outcome {
    make(case, "install").ok()?;
    let tree = tree(case);
    let local = tree.join("usr/local");
    let version = Cmd::new(local.join("bin/shale")).arg("--version").ok()?;
    ensure!(version.starts_with("shale "), "{version}");
    for helper in [
        "mount.shale",
        "mount.fuse.shale",
        "umount.shale",
        "umount.fuse.shale",
    ] {
        let path = tree.join("usr/sbin").join(helper).canonicalize()?;
        ensure_eq!(path, local.join("bin/shale"), "{helper}");
    }
    let unit = fs::read_to_string(local.join("lib/systemd/system/shale@.service"))?;
    ensure!(
        unit.contains("ExecStart=/usr/local/bin/shale mount"),
        "{unit}"
    );
    for command in commands()? {
        let page = local.join(format!("share/man/man1/shale-{command}.1"));
        ensure!(page.is_file(), "{} is missing", page.display());
    }
    for file in [
        "share/man/man1/shale.1",
        "share/man/man8/mount.fuse.shale.8",
        "share/bash-completion/completions/shale",
        "share/zsh/site-functions/_shale",
        "share/fish/vendor_completions.d/shale.fish",
        "share/doc/shale/admin.md",
    ] {
        ensure!(local.join(file).exists(), "{file} is missing");
    }
    // What the page for administrators points at is beside it.
    let docs = local.join("share/doc/shale");
    let page = fs::read_to_string(docs.join("admin.md"))?;
    let links = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    for link in links {
        ensure!(
            docs.join(link).exists(),
            "{link} is missing beside admin.md"
        );
    }
    // Only the helpers are outside the prefix.
    for path in read_tree(&tree)?.into_keys() {
        let inside = path.starts_with("usr/local") || path.starts_with("usr/sbin");
        ensure!(
            inside || tree.join(&path).is_dir(),
            "{} is astray",
            path.display()
        );
    }
    Ok(())
}

fn uninstall(case: &Case) -> Outcome {
    make(case, "install").ok()?;
    // A foreign file, which must stay.
    let other = tree(case).join("usr/local/share/man/man1/other.1");
    fs::write(&other, "x")?;
    make(case, "uninstall").ok()?;
    let left: BTreeSet<PathBuf> = read_tree(&tree(case))?
        .into_iter()
        .filter(|(_, entry)| entry.mode & 0o170_000 != 0o040_000)
        .map(|(path, _)| path)
        .collect();
    let expected = Path::new("usr/local/share/man/man1/other.1").to_owned();
    ensure_eq!(left, BTreeSet::from([expected]), "left behind");
    Ok(())
}

fn manual(case: &Case) -> Outcome {
    make(case, "generated").ok()?;
    let mut count = 0;
    for section in ["man1", "man8"] {
        for entry in fs::read_dir(case.work().join("target/generated").join(section))? {
            let page = entry?.path();
            let finished = Cmd::new("mandoc").args(["-T", "lint", "-W", "warning"]);
            let finished = finished.arg(&page).run()?;
            ensure!(finished.text().is_empty(), "{}", finished.describe());
            let finished = Cmd::new("man").args(["--warnings", "-l", "-Tutf8", "-Z"]);
            let finished = finished.arg(&page).env("MANROFFSEQ", "").run()?.success()?;
            ensure!(finished.stderr.is_empty(), "{}", finished.stderr);
            count += 1;
        }
    }
    ensure!(count > commands()?.len(), "only {count} pages");
    Ok(())
}

fn completions(case: &Case) -> Outcome {
    make(case, "generated").ok()?;
    let file = case.work().join("target/generated/bash/shale.bash");
    let script = "source \"$0\"; complete -p shale > /dev/null; \
        COMP_WORDS=(shale unm) COMP_CWORD=1; _shale shale unm shale; echo \"${COMPREPLY[@]}\"; \
        COMP_WORDS=(shale stat --j) COMP_CWORD=2; _shale shale --j stat; echo \"${COMPREPLY[@]}\"";
    let text = Cmd::new("bash").args(["-euc", script]).arg(&file).ok()?;
    ensure_eq!(text, "unmount\n--json\n", "what is completed");
    Ok(())
}

/// The sources that `make` needs before it calls cargo.
fn sources(case: &Case) -> Outcome<PathBuf> {
    let tree = case.dir("sources")?;
    for name in [
        "Makefile",
        "Cargo.toml",
        "packaging/protoc.sh",
        "packaging/toolchain.sh",
        "tests/scripts/setup.sh",
        "tests/scripts/interleavings.sh",
        "tests/scripts/test.sh",
        "tests/scripts/requirements.txt",
    ] {
        let copy = tree.join(name);
        fs::create_dir_all(copy.parent().doing("the directory of a file")?)?;
        fs::copy(root().join(name), copy)?;
    }
    Ok(tree)
}

/// A program that is a shell script.
fn program(directory: &Path, name: &str, script: &str) -> Outcome {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// A directory with what every machine has, and nothing to build with.
fn bare(case: &Case) -> Outcome<PathBuf> {
    let bin = case.dir("bin")?;
    let usual = [
        "make", "sh", "sed", "sort", "head", "cut", "id", "date", "dirname", "git",
    ];
    for name in usual {
        let found = Cmd::shell("command -v \"$0\"").arg(name).ok()?;
        symlink(found.trim(), bin.join(name))?;
    }
    Ok(bin)
}

fn missing(case: &Case) -> Outcome {
    let (tree, bin) = (sources(case)?, bare(case)?);
    let says = |words: &str| -> Outcome {
        let make = Cmd::new("make").cwd(&tree).args(["-s", "build"]);
        let finished = make.env("PATH", &bin).env("CARGO", "cargo").run()?;
        let lines = finished.stderr.lines().collect::<Vec<_>>();
        let (said, rest) = lines.split_first().doing("what make says")?;
        ensure!(
            said.starts_with("error: ") && said.contains(words),
            "{lines:?}"
        );
        // Only make itself has something to add.
        ensure!(
            rest.iter().all(|line| line.starts_with("make")),
            "{lines:?}"
        );
        Ok(())
    };
    says("has no cargo in PATH: Rust 1.88 or later")?;
    program(&bin, "cargo", "touch built")?;
    says("has no Rust toolchain: Rust 1.88 or later")?;
    program(&bin, "rustc", "echo 'rustc 1.87.9 (x 2025-01-01)'")?;
    says("Rust 1.87.9 is too old: Rust 1.88 or later")?;
    program(&bin, "rustc", "echo 'rustc 1.100.0-nightly (x 2026-01-01)'")?;
    says("a C compiler is needed")?;
    ensure!(!tree.join("built").exists(), "built all the same");
    program(&bin, "cc", "exit 0")?;
    program(&bin, "cargo", "echo > built")?;
    let make = Cmd::new("make").cwd(&tree).args(["-s", "build"]);
    make.env("PATH", &bin).env("CARGO", "cargo").ok()?;
    ensure!(tree.join("built").exists(), "not built");
    Ok(())
}

fn sudo(case: &Case) -> Outcome {
    let (tree, bin) = (sources(case)?, bare(case)?);
    let home = case.dir("home")?;
    let own = home.join(".cargo/bin");
    fs::create_dir_all(&own)?;
    program(&own, "cargo", "echo \"$RUSTUP_HOME\" > built")?;
    program(&own, "rustc", "echo 'rustc 1.90.0 (x)'")?;
    program(&bin, "cc", "exit 0")?;
    let line = format!("echo \"$2:x:1:1::{}:/bin/sh\"", home.display());
    program(&bin, "getent", &line)?;
    let make = || {
        // As sudo leaves it.
        let make = Cmd::new("/usr/bin/env").args(["-u", "RUSTUP_HOME"]);
        let make = make.args(["make", "-s", "build"]).cwd(&tree);
        make.env("PATH", &bin).env("CARGO", "cargo")
    };
    ensure!(
        !make().run()?.status.success(),
        "took a toolchain that was not named"
    );
    make().env("SUDO_USER", "somebody").ok()?;
    let used = fs::read_to_string(tree.join("built"))?;
    ensure_eq!(Path::new(used.trim()), home.join(".rustup"), "toolchain");
    Ok(())
}

fn without_root(case: &Case) -> Outcome {
    const NOBODY: u32 = 65_534;
    let (tree, bin) = (sources(case)?, case.dir("bin")?);
    let cargo = "mkdir -p target/debug .cache/tools && touch target/debug/shale && \
        echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
    program(&bin, "cargo", cargo)?;
    program(&bin, "rustc", "echo 'rustc 1.90.0 (x)'")?;
    // Without the package python3-venv.
    let python = "case $* in *ensurepip* | *venv*) exit 1 ;; esac";
    program(&bin, "python3", python)?;
    // Without a network: etcd cannot be fetched.
    program(&bin, "apt-get", "exit 1")?;
    Cmd::new("chown").args(["-R", "65534"]).arg(&tree).ok()?;
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let finished = Cmd::new("make")
        .cwd(&tree)
        .args(["-s", "test"])
        .env("PATH", path)
        .env("CARGO", "cargo")
        .user(NOBODY, NOBODY)
        .run()?
        .status_is(0)?;
    let text = finished.text();
    ensure!(
        text.contains("skipped 2 of setup: needs what only root or a network can bring"),
        "{text}"
    );
    ensure!(text.contains(" 0 failed, 2 skipped"), "{text}");
    Ok(())
}

fn package(case: &Case) -> Outcome {
    make(case, "deb").ok()?;
    let target = case.work().join("target");
    let mut packages = Vec::new();
    for entry in fs::read_dir(&target)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            packages.push(path);
        }
    }
    let [package] = &packages[..] else {
        return Err(shale_tests::Failure::new(format!("{packages:?}")));
    };
    let field = |name: &str| Cmd::new("dpkg-deb").arg("-f").arg(package).arg(name).ok();
    let version = field("Version")?;
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let expected = format!("version = \"{}\"", version.trim());
    ensure!(
        manifest.contains(&expected),
        "the package has version {version}"
    );
    let depends = field("Depends")?;
    ensure!(
        depends.contains("fuse3") && depends.contains("libc6 (>= 2."),
        "{depends}"
    );
    let copyright =
        Cmd::shell("dpkg-deb --fsys-tarfile \"$0\" | tar -xO ./usr/share/doc/shale/copyright");
    let copyright = copyright.arg(package).ok()?;
    for crate_name in ["sled", "fuser", "zstd-sys"] {
        ensure!(
            copyright.contains(&format!("linked in: {crate_name} ")),
            "no word about {crate_name}"
        );
    }
    let scratch = case.dir("scratch")?;
    Cmd::new(script("package.sh"))
        .arg(package)
        .arg(&scratch)
        .ok()?;
    Ok(())
}
