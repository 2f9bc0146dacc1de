//! Reads a few elements of the XML that AWS responds with.
//!
//! It is stricter than XML: comments, document types, sections of character data and processing instructions
//! are errors, and so is a wanted element that is there twice, because two readers could take two different
//! ones.

use std::collections::BTreeSet;

use zeroize::Zeroizing;

/// Maximum depth of elements. A response of STS has four levels.
const DEPTH_MAX: usize = 16;

/// Reason why a document cannot be read. It shows nothing of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// Not one element with its content, or a part of XML that AWS does not use.
    #[error("is not a plain XML document")]
    Malformed,
    /// Too many levels.
    #[error("has more than {DEPTH_MAX} levels of elements")]
    TooDeep,
    /// A wanted element, or one around it, is there twice.
    #[error("has an element twice")]
    Repeated,
}

/// A tag, with the name of its element.
enum Tag<'a> {
    Start(&'a str),
    End(&'a str),
    /// A start and an end in one.
    Empty(&'a str),
}

/// Returns the texts of the elements at these paths, such as `Response/Result/Key`; `None` for one that is
/// absent. Names are compared as they are written, with their prefix. White space around a text is dropped.
///
/// # Errors
///
/// Fails for any other document than one with plain elements, and if a wanted element has elements itself.
pub fn xml_texts<const N: usize>(
    document: &str,
    paths: [&str; N],
) -> Result<[Option<Zeroizing<String>>; N], XmlError> {
    let mut texts: [Option<Zeroizing<String>>; N] = std::array::from_fn(|_| None);
    let mut rest = without_declaration(document.trim_ascii())?;
    let (mut open, mut seen) = (Vec::new(), BTreeSet::new());
    let mut is_leaf = false;
    while let Some((text, tag)) = next_tag(&mut rest)? {
        if let Tag::Start(name) | Tag::Empty(name) = tag {
            if open.len() == DEPTH_MAX {
                return Err(XmlError::TooDeep);
            }
            open.push(name);
            let path = open.join("/");
            if paths.iter().any(|wanted| is_around(&path, wanted)) && !seen.insert(path) {
                return Err(XmlError::Repeated);
            }
            is_leaf = true;
        }
        let content = match tag {
            Tag::Start(_) => continue,
            Tag::Empty(_) => "",
            Tag::End(name) if open.last() == Some(&name) => text,
            Tag::End(_) => return Err(XmlError::Malformed),
        };
        let path = open.join("/");
        if let Some(number) = paths.iter().position(|wanted| *wanted == path) {
            texts[number] =
                Some(decoded(content.trim_ascii()).filter(|_| is_leaf).ok_or(XmlError::Malformed)?);
        }
        open.pop();
        is_leaf = false;
        if open.is_empty() {
            // The document is over.
            return if rest.is_empty() { Ok(texts) } else { Err(XmlError::Malformed) };
        }
    }
    Err(XmlError::Malformed)
}

/// Returns `true` if `path` is the wanted one, or that of an element around it.
fn is_around(path: &str, wanted: &str) -> bool {
    wanted.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the first element of the document, and all after it.
fn without_declaration(document: &str) -> Result<&str, XmlError> {
    let element = match document.strip_prefix("<?xml ") {
        Some(declaration) => declaration.split_once("?>").ok_or(XmlError::Malformed)?.1.trim_ascii_start(),
        None => document,
    };
    if element.starts_with('<') { Ok(element) } else { Err(XmlError::Malformed) }
}

/// Takes the next tag from `rest`, and the text before it. Returns `None` if there is no further tag.
fn next_tag<'a>(rest: &mut &'a str) -> Result<Option<(&'a str, Tag<'a>)>, XmlError> {
    let Some((text, after)) = rest.split_once('<') else { return Ok(None) };
    let (inside, after) = after.split_once('>').ok_or(XmlError::Malformed)?;
    *rest = after;
    let tag = if let Some(name) = inside.strip_prefix('/') {
        Some(name.trim_ascii_end()).filter(|name| is_name(name)).map(Tag::End)
    } else if let Some(inside) = inside.strip_suffix('/') {
        element_name(inside).map(Tag::Empty)
    } else {
        element_name(inside).map(Tag::Start)
    };
    tag.map(|tag| Some((text, tag))).ok_or(XmlError::Malformed)
}

/// Returns the name of an element from a start tag whose attributes are valid.
fn element_name(inside: &str) -> Option<&str> {
    let is_space = |char: char| char.is_ascii_whitespace();
    let (name, mut attributes) = inside.split_at(inside.find(is_space).unwrap_or(inside.len()));
    while !attributes.trim_ascii().is_empty() {
        let (attribute, value) = attributes.strip_prefix(is_space)?.trim_ascii_start().split_once('=')?;
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let (value, after) = value[1..].split_once(quote)?;
        if !is_name(attribute) || value.contains('<') {
            return None;
        }
        attributes = after;
    }
    is_name(name).then_some(name)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte))
}

/// Returns a text with its references replaced.
fn decoded(text: &str) -> Option<Zeroizing<String>> {
    // A reference is never shorter than its character: nothing is allocated again, which would leave a copy.
    let mut decoded = Zeroizing::new(String::with_capacity(text.len()));
    let mut parts = text.split('&');
    decoded.push_str(parts.next()?);
    for part in parts {
        let (name, after) = part.split_once(';')?;
        decoded.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => numbered(name.strip_prefix('#')?)?,
        });
        decoded.push_str(after);
    }
    Some(decoded)
}

/// Returns the character with this number, which is hexadecimal after an `x`.
fn numbered(number: &str) -> Option<char> {
    let (digits, radix) = number.strip_prefix('x').map_or((number, 10), |digits| (digits, 16));
    // The parser of numbers accepts a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| is_number).and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts<const N: usize>(document: &str, paths: [&str; N]) -> Result<[Option<String>; N], XmlError> {
        xml_texts(document, paths).map(|texts| texts.map(|text| text.map(|text| text.to_string())))
    }

    #[test]
    fn a_response_is_read_by_the_paths_of_its_elements() {
        let document = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <Result>\n    \
            <Keys ><Id>\n AKID </Id><Key>a&amp;b&#60;&#x3E;c/+=</Key><Token/></Keys>\n  </Result>\n  \
            <Metadata><Id>no</Id></Metadata>\n</Response>\n";
        let paths = [
            "Response/Result/Keys/Id",
            "Response/Result/Keys/Key",
            "Response/Result/Keys/Token",
            "Response/Result/None",
        ];
        let expected = [Some("AKID"), Some("a&b<>c/+="), Some(""), None];
        assert_eq!(texts(document, paths).unwrap(), expected.map(|text| text.map(str::to_owned)));
    }

    #[test]
    fn a_document_that_could_be_read_in_two_ways_is_refused() {
        for (document, error) in [
            ("", XmlError::Malformed),
            ("no", XmlError::Malformed),
            ("<a><b>1</b>", XmlError::Malformed),
            ("<a><b>1</a></b>", XmlError::Malformed),
            ("<a><b>1</b></a><a/>", XmlError::Malformed),
            ("<a><b>1</b></a>x", XmlError::Malformed),
            ("<!DOCTYPE a><a><b>1</b></a>", XmlError::Malformed),
            ("<a><!-- --><b>1</b></a>", XmlError::Malformed),
            ("<a><b><![CDATA[1]]></b></a>", XmlError::Malformed),
            ("<a><?b?><b>1</b></a>", XmlError::Malformed),
            ("<a><b>1<c/></b></a>", XmlError::Malformed),
            ("<a><b>&b;</b></a>", XmlError::Malformed),
            ("<a><b>&#+1;</b></a>", XmlError::Malformed),
            ("<a><b>&amp</b></a>", XmlError::Malformed),
            ("<a x><b>1</b></a>", XmlError::Malformed),
            ("<a x='1><b>'>1</b></a>", XmlError::Malformed),
            ("<a x='1'y='2'><b>1</b></a>", XmlError::Malformed),
            ("<a><b>1</b><b>2</b></a>", XmlError::Repeated),
        ] {
            assert_eq!(texts(document, ["a/b"]), Err(error), "{document}");
        }
        let deep = "<a>".repeat(DEPTH_MAX + 1) + &"</a>".repeat(DEPTH_MAX + 1);
        assert_eq!(texts(&deep, ["b"]), Err(XmlError::TooDeep));
        let split = "<a><k><i>1</i></k><k><s>2</s></k></a>";
        assert_eq!(texts(split, ["a/k/i", "a/k/s"]), Err(XmlError::Repeated), "keys could be mixed");
    }

    fn encoded(text: &str) -> String {
        let one = |char: char| {
            if char.is_alphanumeric() { String::from(char) } else { format!("&#{};", u32::from(char)) }
        };
        text.chars().map(one).collect()
    }

    proptest! {
        #[test]
        fn any_text_comes_back_from_its_element(first in ".{0,20}", second in "[a-z<>&;#x'\"/ ]{0,20}") {
            let document = format!("<a><b>{}</b><c d=\"e\">{}</c></a>", encoded(&first), encoded(&second));
            let expected = [first, second].map(Some);
            prop_assert_eq!(texts(&document, ["a/b", "a/c"]), Ok(expected));
        }

        #[test]
        fn any_document_is_read_or_refused(document in "(<|>|</|/>|<a>|</a>|<b>|</b>|&amp;|&|;|#x|[a-c ='\"?!-]){0,24}") {
            if let Ok([Some(text)]) = texts(&document, ["a/b"]) {
                prop_assert!(document.contains("<b") && text.len() < document.len());
            }
        }
    }
}
