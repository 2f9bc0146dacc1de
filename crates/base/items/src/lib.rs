//! Small parts that many rooms need and none owns: macros for items that differ in names alone, which are
//! enums whose variants have a word each and types whose `Debug` leaves out fields, and the search for
//! bytes.

pub mod bytes;

/// Defines an enum whose variants have a word each.
///
/// Behind the colon is the name of the method that returns the word. `ALL` has the variants in their order,
/// so each is at the index that is its discriminant. With `fn` before the name there is no `ALL`. With
/// `Display` behind the colon there is neither: a variant is printed as its word.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident: Display {
            $($(#[$of_variant:meta])* $variant:ident => $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)+
                })
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident: $method:ident {
            $($(#[$of_variant:meta])* $variant:ident => $word:literal,)+
        }
    ) => {
        $crate::words! {
            $(#[$meta])*
            $vis enum $name: fn $method {
                $($(#[$of_variant])* $variant => $word,)+
            }
        }

        impl $name {
            /// All variants, each at the index that is its discriminant.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident: fn $method:ident {
            $($(#[$of_variant:meta])* $variant:ident => $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl $name {
            /// The word of the variant.
            pub const fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

/// Implements `Debug` for a type whose content is secret, or cannot be shown: with its name and these fields.
#[macro_export]
macro_rules! opaque {
    ($name:ident $({ $($field:ident),+ })?) => {
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &self.$field))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    words! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Colour: word {
            Red => "red",
            DarkBlue => "dark-blue",
        }
    }

    words! {
        enum Shade: Display {
            Light => "light",
            Dark => "rather dark",
        }
    }

    words! {
        enum Side: fn name {
            Left => "left",
            Right => "right",
        }
    }

    struct Account {
        name: &'static str,
        _password: &'static str,
    }

    opaque!(Account { name });

    #[test]
    fn variants_have_their_words_in_order() {
        assert_eq!(Colour::ALL.map(Colour::word), ["red", "dark-blue"]);
        assert_eq!(Colour::ALL[Colour::DarkBlue as usize], Colour::DarkBlue);
        assert_eq!(format!("{}, {}", Shade::Light, Shade::Dark), "light, rather dark");
        assert_eq!([Side::Left, Side::Right].map(Side::name), ["left", "right"]);
    }

    #[test]
    fn an_opaque_type_shows_the_named_fields_alone() {
        let account = Account { name: "alice", _password: "secret" };
        assert_eq!(format!("{account:?}"), r#"Account { name: "alice", .. }"#);
    }
}
