//! Kernels compiled twice: for the baseline of the target, and for the vector
//! units that the processor turns out to have.
//!
//! The kernels themselves are plain safe loops that the compiler vectorises;
//! the only unsafe act is to call the second copy, after asking the processor.
//! The baseline copy is the scalar twin that the tests compare with.
//!
//! `transform::kernels` and `entropy::kernels` define kernels with this macro,
//! and are allowed unsafe code for it.
#![forbid(unsafe_code)]

/// Defines a kernel: `name` picks a copy at run time, `name::baseline` is the
/// twin. Table look-ups do better without vectors: gathering is slow.
macro_rules! kernel {
    ($(#[$doc:meta])* fn $($rest:tt)*) => {
        kernel! { with "avx2,bmi1,bmi2,lzcnt"; $(#[$doc])* fn $($rest)* }
    };
    (with $features:literal; $(#[$doc:meta])* fn $name:ident $(<$word:ident: $bound:path>)? ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name $(<$word: $bound>)? ($($arg: $type),*) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if $crate::simd::has_wide() {
                // SAFETY: the processor has just been asked for all of it.
                return unsafe { $name::wide($($arg),*) };
            }
            $name::baseline($($arg),*)
        }

        pub(crate) mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub(crate) fn baseline $(<$word: $bound>)? ($($arg: $type),*) $body

            /// # Safety
            /// The processor must have what `simd::has_wide` asks for.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            #[target_feature(enable = $features)]
            #[allow(clippy::too_many_arguments)]
            pub(super) unsafe fn wide $(<$word: $bound>)? ($($arg: $type),*) {
                baseline($($arg),*)
            }
        }
    };
}

pub(crate) use kernel;

/// Whether the processor has the vectors and bit operations of the wide copies.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn has_wide() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")
}
