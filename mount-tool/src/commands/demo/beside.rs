//! The ratios of other programs for the same data.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::weather::Weather;
use crate::output::failure::Failure;

/// A file outside the store with the first time step, and its compressed copy. Dropping it removes
/// both.
pub(crate) struct Sample {
    path: PathBuf,
    copy: PathBuf,
    length: u64,
}

impl Sample {
    pub(crate) fn write(directory: &Path, weather: &Weather) -> Result<Self, Failure> {
        let sample = Self {
            path: directory.join("sample.nc"),
            copy: directory.join("sample.nc4"),
            length: weather.dataset().file_size(1),
        };
        let write = || {
            let mut file = File::create_new(&sample.path)?;
            file.write_all(&weather.dataset().header(1))?;
            file.write_all(&weather.fixed())?;
            weather.record(0, |piece| file.write_all(piece))
        };
        write().map_err(|e| Failure::io("write", &sample.path, &e))?;
        Ok(sample)
    }

    /// The ratio of `gzip -6`; none if gzip is not installed.
    pub(crate) fn gzip(&self) -> Option<f64> {
        let mut child = Command::new("gzip")
            .args(["-6", "-c"])
            .stdin(File::open(&self.path).ok()?)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let length = child.stdout.take().map(length_of);
        let status = child.wait().ok()?;
        self.ratio(length?.ok()?, status.success())
    }

    /// The ratio of netCDF's own compression; none if netcdf-bin is not installed.
    pub(crate) fn nccopy(&self) -> Option<f64> {
        let status = Command::new("nccopy")
            .args(["-d5", "-s"])
            .args([&self.path, &self.copy])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .ok()?;
        let length = self.copy.metadata().map(|facts| facts.len());
        self.ratio(length.ok()?, status.success())
    }

    fn ratio(&self, length: u64, succeeded: bool) -> Option<f64> {
        (succeeded && length > 0).then(|| self.length as f64 / length as f64)
    }
}

fn length_of(mut stream: impl Read) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut length = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(length),
            count => length += count as u64,
        }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        for path in [&self.path, &self.copy] {
            // One may not exist.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let sample = Sample::write(dir.path(), &Weather::new()).unwrap();
        let length = sample.path.metadata().unwrap().len();
        assert_eq!(length, sample.length);
        std::fs::write(&sample.copy, "x").unwrap();
        drop(sample);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
