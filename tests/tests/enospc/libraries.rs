//! Scientific libraries on a full device: an exception as on ext4, never a crash.

use shale_tests::{Case, Cmd, Finished, LoopFs, Mount, Outcome, ensure, note, python, script};

const LIBRARIES: [&str; 4] = ["classic", "netcdf4", "h5py", "xarray"];

fn fill(library: &str, directory: &std::path::Path) -> Outcome<Finished> {
    Cmd::new(python())
        .arg(script("full_device.py"))
        .arg(library)
        .arg(directory)
        .run()
}

/// How a program ended: its status, or the signal that killed it, and what it printed.
fn end(finished: &Finished) -> (Option<i32>, String) {
    (finished.status.code(), finished.text().trim().to_owned())
}

pub(crate) fn exceptions(case: &Case) -> Outcome {
    for library in LIBRARIES {
        let plain = case.loop_fs(&format!("plain-{library}"), LoopFs::Ext4, 120 << 20)?;
        let expected = fill(library, plain.path())?;
        let device = case.loop_fs(&format!("device-{library}"), LoopFs::Ext4, 120 << 20)?;
        let point = case.work().join(format!("fs-{library}"));
        let mut mount = Mount::new(device.path().join("store"), point, &[])?;
        let found = fill(library, mount.path())?;
        note(format!(
            "{library}: {:?}, on ext4 {:?}",
            end(&found),
            end(&expected)
        ));
        // What crashes on ext4 may crash here.
        ensure!(
            found.status.code().is_some() || expected.status.code().is_none(),
            "{library} died here and not on ext4: {}",
            found.describe()
        );
        ensure!(
            found.status.code() != Some(0)
                || found.text().contains("Error")
                || expected.status.code() != Some(0)
                || !expected.text().contains("Error"),
            "{library} was told nothing here, and on ext4 {}",
            expected.text()
        );
        ensure!(
            !mount.log_text().contains("are lost"),
            "{library} lost data:\n{}",
            mount.log_tail()
        );
        mount.unmount()?;
        mount.fsck_is_clean()?;
    }
    Ok(())
}
