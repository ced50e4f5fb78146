//! The macro behind the one list of statistics, and the rows that it generates.
//!
//! A row of [`stats!`] names a number once: the field of the report, the sentence that documents it
//! in code and in the metric's `HELP`, where its value comes from, and the metric, if there is one.

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

impl Kind {
    /// The name in the text format of Prometheus.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// One field of the statistics `S`.
pub(crate) struct Row<S: 'static> {
    pub(crate) help: &'static str,
    /// The metric made from it, or none.
    pub(crate) metric: &'static [Metric<S>],
}

/// A metric made from one field of the statistics `S`.
pub(crate) struct Metric<S> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) value: fn(&S) -> f64,
}

/// What the value of a metric can be.
pub(crate) trait Number: Copy {
    fn number(self) -> f64;
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// Declares a struct of statistics with `of`, which reads the source, and its table `ROWS`.
///
/// ```text
/// /// Documents the field, and is the HELP of the metric.
/// field: type = value from the source => Counter "name_of_the_metric_total";
/// ```
macro_rules! stats {
    (
        $(#[$meta:meta])*
        pub struct $Stats:ident of $source:ident: $Source:ty {
            $(
                $(#[doc = $help:literal])+
                $(#[serde($($serde:tt)*)])?
                $field:ident: $type:ty = $value:expr $(=> $kind:ident $metric:literal)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $Stats {
            $(
                $(#[doc = $help])+
                $(#[serde($($serde)*)])?
                pub $field: $type,
            )*
        }

        impl $Stats {
            /// The table, a row for each field.
            pub(crate) const ROWS: &[Row<Self>] = &[
                $(Row {
                    help: concat!($($help),+).trim_ascii_start(),
                    metric: &[$(Metric {
                        name: $metric,
                        kind: Kind::$kind,
                        value: |stats| stats.$field.number(),
                    })?],
                },)*
            ];

            /// The numbers of this moment.
            pub(crate) fn of($source: $Source) -> Self {
                Self {
                    $($field: $value,)*
                }
            }
        }
    };
}

pub(crate) use stats;
