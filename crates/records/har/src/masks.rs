//! Masks: the values that a recording hides besides secrets, by their name or by their look.

use std::collections::BTreeSet;

use crate::personal::PersonalKind;

/// Maximum number of masks.
pub(crate) const MASKS_MAX: usize = 256;

/// Maximum length of a mask in bytes. Longer names are not looked for in texts.
pub(crate) const MASK_BYTES_MAX: usize = 64;

/// Compiled masks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Masks {
    /// Names as [`plain`] writes them.
    names: BTreeSet<String>,
    /// The kinds of values that are found wherever they are.
    pub(crate) kinds: Vec<PersonalKind>,
}

impl Masks {
    /// Adds a mask. Returns `false` if it is not a name.
    pub(crate) fn add(&mut self, mask: &str) -> bool {
        let name = plain(mask);
        if name.is_empty() || mask.len() > MASK_BYTES_MAX || mask.contains(['*', '$', ',']) {
            return false;
        }
        self.kinds.extend(kinds(&name));
        self.names.insert(name);
        true
    }

    /// Adds names, without the kinds that they may also mean.
    pub(crate) fn add_names<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.names.extend(names.into_iter().map(plain).filter(|name| !name.is_empty()));
    }

    /// Returns `true` if the values of this name are masked: if the name, or a part of it as in
    /// `user[phone]` and `user.phone`, is a mask.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut names = std::iter::once(name).chain(name.split(['.', '[', ']', ':']));
        !self.names.is_empty() && names.any(|name| self.names.contains(&plain(name)))
    }
}

/// Returns a name in lower case, without hyphens, underscores and blanks.
fn plain(name: &str) -> String {
    let is_kept = |letter: &char| !matches!(letter, '-' | '_') && !letter.is_whitespace();
    name.chars().filter(is_kept).flat_map(char::to_lowercase).collect()
}

/// Returns the kinds of values that a name also stands for. E-mail addresses and card numbers are found as
/// secrets anyway.
fn kinds(name: &str) -> &'static [PersonalKind] {
    match name {
        "iban" => &[PersonalKind::Iban],
        "phone" => &[PersonalKind::Phone],
        "ip" => &[PersonalKind::Ipv4, PersonalKind::Ipv6],
        "ipv4" => &[PersonalKind::Ipv4],
        "ipv6" => &[PersonalKind::Ipv6],
        "ssn" => &[PersonalKind::Ssn],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_name_in_all_spellings() {
        let mut masks = Masks::default();
        assert!(masks.add("first_name") && masks.add("Phone") && masks.add("phone") && masks.add("Straße"));
        for name in [
            "first_name",
            "firstName",
            "FIRST-NAME",
            "first name",
            "firstname",
            "phone",
            "user[phone]",
            "user.phone",
            "c:phone",
            "phone[0]",
            "STRAßE",
        ] {
            assert!(masks.has(name), "{name}");
        }
        for name in ["", "first", "name", "phone_number", "telephone", "user[name]"] {
            assert!(!masks.has(name), "{name}");
        }
        assert_eq!(masks.kinds.first(), Some(&PersonalKind::Phone));
    }

    #[test]
    fn a_text_that_is_no_name_is_refused() {
        let long = "a".repeat(MASK_BYTES_MAX + 1);
        for mask in ["", " ", "_", "$.phone", "user.*", "name, phone", &long] {
            assert!(!Masks::default().add(mask), "{mask}");
        }
        let mut masks = Masks::default();
        masks.add_names(["X-Team", "-"]);
        assert!(masks.has("x_team") && !masks.has("") && !masks.has("-") && masks.kinds.is_empty());
    }
}
