//! Joins the texts of a config: the file, and those that it includes.

use crate::tree::{Mapping, Position, YamlEntry, YamlNode, YamlValue};

/// Two texts that give the same name, or that cannot be joined.
#[derive(Debug)]
pub(crate) struct Clash {
    pub path: String,
    pub message: String,
    /// Text and position of the first one, if there is one.
    pub first: Option<(u16, Position)>,
    /// Text and position of the second one.
    pub second: (u16, Position),
}

/// The key that only the config file itself can have.
pub(crate) const INCLUDE: &str = "include";

/// Adds the entries of an included text to those of the config. Mappings are joined by their keys, lists are
/// appended. Returns what cannot be joined.
pub(crate) fn join(root: &mut YamlNode, included: YamlNode) -> Vec<Clash> {
    let mut clashes = Vec::new();
    let (at, source) = (included.at, included.source);
    let YamlValue::Mapping(Mapping { entries, .. }) = included.value else {
        if !matches!(included.value, YamlValue::Null) {
            let message = "an included file has keys of the config, such as `flows`".to_owned();
            clashes.push(Clash { path: String::new(), message, first: None, second: (source, at) });
        }
        return clashes;
    };
    if !matches!(root.value, YamlValue::Mapping(_)) {
        // The config file itself is wrong, which its reader reports.
        return clashes;
    }
    for entry in entries {
        if entry.key == INCLUDE {
            let message = "an included file cannot include others: list them in the config file".to_owned();
            let second = (source, entry.key_at);
            clashes.push(Clash { path: entry.key, message, first: None, second });
            continue;
        }
        let YamlValue::Mapping(mapping) = &mut root.value else { return clashes };
        match mapping.entries.iter_mut().find(|known| known.key == entry.key) {
            Some(known) => join_section(known, entry, &mut clashes),
            None => mapping.entries.push(entry),
        }
    }
    clashes
}

/// Joins two sections of the same name.
fn join_section(known: &mut YamlEntry, entry: YamlEntry, clashes: &mut Vec<Clash>) {
    let (key_at, source) = (entry.key_at, entry.node.source);
    let first = (known.node.source, known.key_at);
    match (&mut known.node.value, entry.node.value) {
        (_, YamlValue::Null) => {}
        (YamlValue::Sequence(list), YamlValue::Sequence(more)) => list.extend(more),
        (YamlValue::Mapping(mapping), YamlValue::Mapping(more)) => {
            for entry in more.entries {
                match mapping.entries.iter().find(|known| known.key == entry.key) {
                    Some(same) => clashes.push(Clash {
                        path: format!("{}.{}", known.key, entry.key),
                        message: format!("`{}` is given twice", entry.key),
                        first: Some((same.node.source, same.key_at)),
                        second: (entry.node.source, entry.key_at),
                    }),
                    None => mapping.entries.push(entry),
                }
            }
        }
        (YamlValue::Null, value) => {
            let mut node = YamlNode::new(entry.node.at, value);
            node.set_source(source);
            (known.key_at, known.node) = (key_at, node);
        }
        _ => clashes.push(Clash {
            path: entry.key,
            message: "this section is given twice, and only mappings and lists can be joined".to_owned(),
            first: Some(first),
            second: (source, key_at),
        }),
    }
}
