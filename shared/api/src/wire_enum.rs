//! Enums whose names are on the wire, and to which a newer program may have added values.

/// Declares such an enum: its variants with their names and descriptions, and one for names that this program does not know.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $Enum:ident $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)*) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $Enum {
            $($(#[doc = $doc])+ $variant,)*
            /// A value that only a newer program knows.
            Other(std::sync::Arc<str>),
        }

        impl $Enum {
            /// Every value that this program knows, with its description, in the order of the declaration.
            pub const ALL: &[(Self, &'static str)] = &[
                $((Self::$variant, concat!($($doc),+)),)*
            ];

            /// The name on the wire.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }

            /// The value of a name on the wire. An unknown name that is too long is cut.
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    _ => Self::Other(dueline_domain::bounded_message(name).into()),
                }
            }
        }
    };
}
pub(crate) use wire_enum;
