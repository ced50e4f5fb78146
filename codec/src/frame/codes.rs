//! Enums that are bytes of the format, from one table each.

/// Defines an enum whose variants have a byte in the format and, where people
/// see them, a name. Decoding and naming follow from the same table.
macro_rules! byte_codes {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $byte:literal, $text:literal;)+
    }) => {
        byte_codes! { $(#[$meta])* $vis enum $name { $($(#[$doc])* $variant = $byte;)+ } }

        impl $name {
            /// Its name for users.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $byte:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $vis enum $name {
            $($(#[$doc])* $variant = $byte,)+
        }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) fn from_byte(byte: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| *code as u8 == byte)
            }
        }
    };
}
pub(crate) use byte_codes;
