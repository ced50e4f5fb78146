//! Binaries with a sanitizer in them.

/// Whether the binary under test has a sanitizer in it, as `SHALE_TEST_SANITIZED` says: its memory
/// is then no measure of anything.
pub fn is_sanitized() -> bool {
    std::env::var_os("SHALE_TEST_SANITIZED").is_some()
}
