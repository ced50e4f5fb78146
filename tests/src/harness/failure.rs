//! Why a test failed, and where.

use std::fmt::{self, Debug, Display};
use std::panic::Location;

/// The result of a test.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A failed expectation or an unexpected error, with the line that noticed it.
///
/// Any `Display` error converts with `?`; the conversion records where.
pub struct Failure {
    what: String,
    at: &'static Location<'static>,
}

impl Failure {
    /// A failure noticed by the caller.
    #[track_caller]
    pub fn new(what: impl Into<String>) -> Self {
        Failure {
            what: what.into(),
            at: Location::caller(),
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Failure::new(error.to_string())
    }
}

impl Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.at.file(), self.at.line(), self.what)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(self, f)
    }
}

/// Adds what was being done to a failure.
pub trait Context<T> {
    /// Turns an error into a [`Failure`] that begins with `doing`.
    #[track_caller]
    fn doing(self, doing: impl Display) -> Outcome<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    #[track_caller]
    fn doing(self, doing: impl Display) -> Outcome<T> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Failure::new(format!("{doing}: {error}"))),
        }
    }
}

impl<T> Context<T> for Option<T> {
    #[track_caller]
    fn doing(self, doing: impl Display) -> Outcome<T> {
        match self {
            Some(value) => Ok(value),
            None => Err(Failure::new(format!("{doing}: nothing there"))),
        }
    }
}

/// Returns a [`Failure`] from the enclosing function unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}

/// Returns a [`Failure`] that shows both sides unless they are equal.
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {
        $crate::ensure_eq!($left, $right, "{}", stringify!($left))
    };
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) if *left != *right => {
                return Err($crate::Failure::new(format!(
                    "{}: found {:?}, expected {:?}",
                    format_args!($($message)+), left, right
                )));
            }
            _ => {}
        }
    };
}
