//! The values of a parsed config, for rules that compare two texts without reading what they refer to.

use crate::tree::{Position, YamlNode, YamlValue};

/// A value of a config's text.
#[derive(Clone, Copy)]
pub struct Node<'a>(&'a YamlNode);

impl<'a> Node<'a> {
    pub(crate) fn new(node: &'a YamlNode) -> Self {
        Self(node)
    }

    /// Returns the keys and values of a mapping, in the order of the text; none if it is no mapping.
    pub fn entries(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let entries = match &self.0.value {
            YamlValue::Mapping(mapping) => mapping.entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|entry| (entry.key.as_str(), Self(&entry.node)))
    }

    /// Returns the value of a mapping's key.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.entries().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// Returns the elements of a list; none if it is no list.
    pub fn elements(self) -> impl Iterator<Item = Node<'a>> {
        let elements = match &self.0.value {
            YamlValue::Sequence(nodes) => nodes.as_slice(),
            _ => &[],
        };
        elements.iter().map(Self)
    }

    /// Returns the elements of a list, or the value itself if it stands for a list of it.
    pub(crate) fn items(self) -> impl Iterator<Item = Node<'a>> {
        self.0.is_one_item().then_some(self).into_iter().chain(self.elements())
    }

    /// Returns the value that a path such as `flows[0].remedies` leads to. Its names have no dots.
    pub fn at_path(self, path: &str) -> Option<Node<'a>> {
        path.split(['.', '[']).try_fold(self, |node, step| {
            match step.strip_suffix(']').and_then(|number| number.parse().ok()) {
                Some(number) => node.elements().nth(number),
                None => node.get(step),
            }
        })
    }

    /// The value itself.
    pub fn value(self) -> &'a YamlValue {
        &self.0.value
    }

    /// The first character of the value.
    pub(crate) fn at(self) -> Position {
        self.0.at
    }

    /// Returns the text, if it is one.
    pub fn text(self) -> Option<&'a str> {
        match &self.0.value {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns `true` once [`crate::Document::read`] has read it as the path of a file or directory.
    pub fn is_path(self) -> bool {
        self.0.is_path.get()
    }

    /// Returns `true` if both have the same content, wherever they are and in whatever order their keys are.
    pub fn is_same(self, other: Node<'_>) -> bool {
        match (&self.0.value, &other.0.value) {
            (YamlValue::Null, YamlValue::Null) => true,
            (YamlValue::Bool(a), YamlValue::Bool(b)) => a == b,
            (YamlValue::Unsigned(a), YamlValue::Unsigned(b)) => a == b,
            (YamlValue::Signed(a), YamlValue::Signed(b)) => a == b,
            (YamlValue::Float(a), YamlValue::Float(b)) => a.to_bits() == b.to_bits(),
            (YamlValue::Text(a), YamlValue::Text(b)) => a == b,
            (YamlValue::Sequence(a), YamlValue::Sequence(b)) => {
                a.len() == b.len() && self.elements().zip(other.elements()).all(|(a, b)| a.is_same(b))
            }
            (YamlValue::Mapping(a), YamlValue::Mapping(b)) => {
                let has_same =
                    |(key, value): (&str, Node<'_>)| other.get(key).is_some_and(|b| value.is_same(b));
                a.entries.len() == b.entries.len() && self.entries().all(has_same)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde::Deserialize;

    use crate::Document;

    #[test]
    fn content_is_compared_without_position_order_and_aliases() {
        let parsed = |text| Document::parse("a.yaml", text).unwrap();
        let one = parsed("a: &x { b: [1, 'two'] }\nc: *x\n");
        let other = parsed("# other\nc:\n  b:\n  - 1\n  - two\na: { b: [1, two] }\n");
        assert!(one.root().is_same(other.root()));
        for text in ["a: { b: [1, two] }", "a: { b: [1, two] }\nc: { b: [1] }", "a: { b: [1, two] }\nc: 1"] {
            assert!(!one.root().is_same(parsed(text).root()), "{text}");
        }
    }

    #[test]
    fn a_path_is_known_by_the_type_of_its_key() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Read {
            #[expect(dead_code, reason = "only its type matters")]
            file: Option<PathBuf>,
            #[expect(dead_code, reason = "only its type matters")]
            text: String,
        }
        let mut document = Document::parse("a.yaml", "file: x\ntext: x\n").unwrap();
        let marked =
            |document: &Document<'_>| ["file", "text"].map(|key| document.root().get(key).unwrap().is_path());
        assert_eq!(marked(&document), [false, false]);
        document.read::<Read>().unwrap();
        assert_eq!(marked(&document), [true, false]);
    }
}
