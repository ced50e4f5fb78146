//! Writes cache lines back to persistent memory.
#![allow(unsafe_code)]

/// How this processor writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Writes it back and keeps it.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// Writes it back and drops it, without waiting for other lines.
    #[cfg(target_arch = "x86_64")]
    ClflushOpt,
    /// Writes it back and drops it, one line after the other.
    #[cfg(target_arch = "x86_64")]
    Clflush,
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

impl Flush {
    /// The best method of this processor; `None` where only the kernel can flush.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_this_processor() -> Option<Self> {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        let features = if std::arch::x86_64::__cpuid(0).eax >= 7 {
            std::arch::x86_64::__cpuid_count(7, 0).ebx
        } else {
            0
        };
        Some(if features & CLWB != 0 {
            Self::Clwb
        } else if features & CLFLUSHOPT != 0 {
            Self::ClflushOpt
        } else {
            Self::Clflush
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn of_this_processor() -> Option<Self> {
        None
    }

    /// Makes this thread's writes to a range persistent, if persistent memory is mapped there.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn persist(self, range: &[u8]) {
        use std::arch::asm;
        let begin = range.as_ptr() as usize & !(LINE - 1);
        let end = range.as_ptr() as usize + range.len();
        for line in (begin..end).step_by(LINE) {
            // SAFETY: the line holds a byte of `range`, so it is mapped; the instructions change
            // no memory and no flags, and `of_this_processor` has checked that it has them.
            unsafe {
                match self {
                    Self::Clwb => {
                        asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    Self::ClflushOpt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Self::Clflush => {
                        asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                }
            }
        }
        // SAFETY: a fence; the lines above have reached the memory before anything below is seen.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn persist(self, _range: &[u8]) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn flushing_changes_nothing() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let flush = Flush::of_this_processor().unwrap();
        for (from, to) in [(0, 0), (0, 1), (63, 65), (1, 9_999), (0, 10_000)] {
            flush.persist(&bytes[from..to]);
            Flush::Clflush.persist(&bytes[from..to]);
        }
        assert!(bytes.iter().enumerate().all(|(i, &b)| b == i as u8));
    }
}
