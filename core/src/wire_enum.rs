//! Enums whose numbers travel: through rings, recordings, tables, the C interface or a tool's output.

/// Defines an enum of numbered variants, each with an optional text for people (its name where there is none), and what
/// every such enum needs: `ALL`, `from_number`, `number` and `text`, so that no variant can be left out of one of them.
///
/// ```
/// uunwind_core::numbered! {
///     /// The end of a rope.
///     #[derive(PartialOrd)]
///     pub enum Knot: u8 {
///         /// Holds.
///         Bowline = 1, "a bowline";
///         /// Does not.
///         Granny = 4;
///     }
/// }
/// assert_eq!(Knot::from_number(4), Some(Knot::Granny));
/// assert_eq!(Knot::from_number(2), None);
/// assert_eq!((Knot::Bowline.number(), Knot::Bowline.text(), Knot::Granny.text()), (1, "a bowline", "Granny"));
/// assert_eq!(Knot::ALL, [Knot::Bowline, Knot::Granny]);
/// ```
#[macro_export]
macro_rules! numbered {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $int:ident {
        $($(#[$doc:meta])* $variant:ident = $number:literal $(, $text:literal)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr($int)]
        $vis enum $name { $($(#[$doc])* $variant = $number,)* }

        #[allow(dead_code, reason = "not every enum is read, or shown to people")]
        impl $name {
            /// Every variant, in the order of their definition.
            $vis const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The variant with this number; `None` for a number that this version does not define.
            $vis const fn from_number(number: $int) -> ::core::option::Option<$name> {
                match number {
                    $($number => ::core::option::Option::Some($name::$variant),)*
                    _ => ::core::option::Option::None,
                }
            }

            /// The number that travels. It keeps its meaning for ever.
            $vis const fn number(self) -> $int {
                self as $int
            }

            /// A text for people, as printed in reports; without one, the variant's name.
            $vis const fn text(self) -> &'static str {
                match self { $($name::$variant => $crate::numbered!(@text $variant $($text)?),)* }
            }
        }
    };
    (@text $variant:ident $text:literal) => { $text };
    (@text $variant:ident) => { ::core::stringify!($variant) };
}
