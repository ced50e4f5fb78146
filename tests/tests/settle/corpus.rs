//! Files of every understood format, on the host and in a mount.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use shale_tests::{Case, Cmd, Context, Mount, Outcome, Rng, ensure, python, script, shale};

/// A corpus on the host and in a mount.
pub(crate) struct Corpus {
    pub(crate) host: PathBuf,
    pub(crate) mount: Mount,
    pub(crate) names: Vec<String>,
}

impl Corpus {
    pub(crate) fn new(case: &Case, options: &[&str]) -> Outcome<Corpus> {
        let host = case.dir("host")?;
        Cmd::new(python())
            .arg(script("settle_corpus.py"))
            .arg(&host)
            .limit(Duration::from_secs(120))
            .ok()?;
        let mount = case.mount("fs", options)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&host)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            fs::copy(host.join(&name), mount.path().join(&name))?;
            names.push(name);
        }
        names.sort();
        ensure!(names.len() >= 12, "the corpus is incomplete: {names:?}");
        Ok(Corpus { host, mount, names })
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    pub(crate) fn check(&self, name: &str) -> Outcome {
        let expected = fs::read(self.host.join(name))?;
        let found = fs::read(self.at(name)).doing(format!("reading {name}"))?;
        ensure!(found == expected, "{name} differs from its original");
        Ok(())
    }

    pub(crate) fn check_all(&self) -> Outcome {
        self.names.iter().try_for_each(|name| self.check(name))
    }

    /// Changes some bytes of a file, on the host and in the mount.
    pub(crate) fn patch(&self, name: &str, rng: &mut Rng) -> Outcome {
        let host = File::options().write(true).open(self.host.join(name))?;
        let here = File::options().write(true).open(self.at(name))?;
        let len = host.metadata()?.len();
        for _ in 0..3 {
            let count = 1 + rng.below(9000) as usize;
            let bytes = rng.bytes(count);
            let offset = rng.below(len);
            host.write_all_at(&bytes, offset)?;
            here.write_all_at(&bytes, offset)?;
        }
        here.sync_all()?;
        Ok(())
    }

    pub(crate) fn settle(&self) -> Outcome {
        shale()
            .args(["settle", "--wait"])
            .arg(self.mount.path())
            .limit(Duration::from_secs(200))
            .ok()?;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Outcome {
        self.mount.remount()?;
        self.check_all()?;
        self.mount.unmount()?;
        self.mount.fsck_is_clean()
    }
}
