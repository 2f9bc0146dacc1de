//! The structs of config keys, with the default of each key behind its type.

/// Defines a struct of config keys.
///
/// A key has the default behind its `=`, otherwise that of its type. The struct can be parsed, written and
/// described in the JSON Schema, and refuses unknown keys. It is `Debug`, `Clone` and `PartialEq`. An
/// `Option` without a `=` is not written while it is `None`. The crate needs `serde` and `schemars`.
#[macro_export]
macro_rules! keys {
    ($(#[$of_struct:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::keys! { @fields { $(#[$of_struct])* $vis struct $name } {} {} $($fields)* }
    };
    (
        @fields $item:tt { $($fields:tt)* } { $($defaults:tt)* }
        $(#[$of_key:meta])* $vis:vis $key:ident: Option<$type:ty>, $($rest:tt)*
    ) => {
        $crate::keys! {
            @fields $item
            {
                $($fields)*
                $(#[$of_key])* #[serde(skip_serializing_if = "Option::is_none")] $vis $key: Option<$type>,
            }
            { $($defaults)* $key: None, }
            $($rest)*
        }
    };
    (
        @fields $item:tt { $($fields:tt)* } { $($defaults:tt)* }
        $(#[$of_key:meta])* $vis:vis $key:ident: $type:ty, $($rest:tt)*
    ) => {
        $crate::keys! {
            @fields $item
            { $($fields)* $(#[$of_key])* $vis $key: $type, }
            { $($defaults)* $key: Default::default(), }
            $($rest)*
        }
    };
    (
        @fields $item:tt { $($fields:tt)* } { $($defaults:tt)* }
        $(#[$of_key:meta])* $vis:vis $key:ident: $type:ty = $default:expr, $($rest:tt)*
    ) => {
        $crate::keys! {
            @fields $item
            { $($fields)* $(#[$of_key])* $vis $key: $type, }
            { $($defaults)* $key: $default, }
            $($rest)*
        }
    };
    (
        @fields { $(#[$of_struct:meta])* $vis:vis struct $name:ident }
        { $($fields:tt)* } { $($defaults:tt)* }
    ) => {
        #[derive(Debug, Clone, PartialEq, ::serde::Deserialize, ::serde::Serialize, ::schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$of_struct])*
        $vis struct $name { $($fields)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($defaults)* }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    keys! {
        /// A wait.
        #[derive(Eq)]
        struct Wait {
            /// Its longest time.
            max_s: u32 = 30,
            /// Its name.
            name: String,
            /// The number of those who may wait.
            #[serde(rename = "room")]
            size: Option<u16>,
            /// The order in which they wait, none if `null`.
            order: Option<String> = Some("arrival".to_owned()),
        }
    }

    #[test]
    fn missing_keys_have_their_defaults() {
        let order = Some("arrival".to_owned());
        let expected = Wait { max_s: 30, name: String::new(), size: None, order };
        assert_eq!(Wait::default(), expected);
        let read: Wait = serde_json::from_str(r#"{ "name": "short" }"#).unwrap();
        assert_eq!(read, Wait { name: "short".to_owned(), ..expected });
        assert!(serde_json::from_str::<Wait>(r#"{ "nam": "short" }"#).is_err());
    }

    #[test]
    fn an_absent_option_is_written_only_if_it_has_a_default() {
        let written = |wait: &Wait| serde_json::to_string(wait).unwrap();
        assert_eq!(written(&Wait::default()), r#"{"max_s":30,"name":"","order":"arrival"}"#);
        let full = Wait { size: Some(1), order: None, ..Wait::default() };
        assert_eq!(written(&full), r#"{"max_s":30,"name":"","room":1,"order":null}"#);
    }
}
