//! Trees of path segments that index flows.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use egret_http1::Span;

use crate::matching::{PathPattern, Readings, SegmentPattern};

/// All trees of a router, in one vector.
#[derive(Debug, Default)]
pub(super) struct Forest {
    nodes: Vec<SegmentNode>,
}

/// The flows of one provider or host.
#[derive(Debug, Default)]
pub(super) struct Root {
    /// Flows without a path.
    pub pathless: Vec<u32>,
    /// The node of the path `/`, if any flow has a path.
    pub tree: Option<u32>,
    /// Paths that are regular expressions, as number of the flow and of the pattern in the flow.
    pub regexes: Vec<(u32, u32)>,
}

/// A node of a tree: the position after some segments of a path.
#[derive(Debug, Default)]
struct SegmentNode {
    literals: HashMap<Box<[u8]>, u32, BuildHasherDefault<ShortHasher>>,
    parameter: Option<u32>,
    /// Patterns that end here, as number of the flow and of the pattern in the flow.
    exact: Vec<(u32, u32)>,
    /// Patterns that end here in `/*`.
    open: Vec<(u32, u32)>,
}

/// A flow that was found, with the numbers of its pattern and of the path's reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IndexEntry {
    pub flow: u32,
    pub pattern: u32,
    pub reading: u32,
}

impl Forest {
    /// Indexes `flow` under each of `paths`, or as pathless if there are none.
    pub fn file(&mut self, root: &mut Root, flow: u32, paths: &[PathPattern]) {
        if paths.is_empty() {
            root.pathless.push(flow);
            return;
        }
        for (number, pattern) in (0..).zip(paths) {
            let PathPattern::Segments(pattern) = pattern else {
                root.regexes.push((flow, number));
                continue;
            };
            let root_node = *root.tree.get_or_insert_with(|| self.grow());
            let mut node = root_node;
            for segment in &pattern.segments {
                node = self.child(node, segment);
            }
            let node = &mut self.nodes[node as usize];
            let ends = if pattern.is_open { &mut node.open } else { &mut node.exact };
            ends.push((flow, number));
        }
    }

    fn child(&mut self, node: u32, segment: &SegmentPattern) -> u32 {
        let children = &self.nodes[node as usize];
        let known = match segment {
            SegmentPattern::Literal(bytes) => children.literals.get(bytes).copied(),
            SegmentPattern::Parameter(_) | SegmentPattern::Any => children.parameter,
        };
        known.unwrap_or_else(|| {
            let child = self.grow();
            let children = &mut self.nodes[node as usize];
            match segment {
                SegmentPattern::Literal(bytes) => {
                    children.literals.insert(bytes.clone(), child);
                }
                SegmentPattern::Parameter(_) | SegmentPattern::Any => children.parameter = Some(child),
            }
            child
        })
    }

    fn grow(&mut self) -> u32 {
        self.nodes.push(SegmentNode::default());
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds the flows that match a reading of the path to `found`. Each node is reached in only one way, so a
    /// search visits each node at most once and goes no deeper than the longest pattern.
    pub fn search(&self, root_node: u32, readings: &Readings, reading: usize, found: &mut Vec<IndexEntry>) {
        let number = u32::try_from(reading).unwrap_or(u32::MAX);
        let mut search = Search { forest: self, text: readings.text(), reading: number, found };
        search.visit(root_node, readings.segments(reading));
    }
}

struct Search<'a> {
    forest: &'a Forest,
    text: &'a [u8],
    reading: u32,
    found: &'a mut Vec<IndexEntry>,
}

impl Search<'_> {
    fn visit(&mut self, node: u32, segments: &[Span]) {
        let node = &self.forest.nodes[node as usize];
        self.add(&node.open);
        let Some((first, rest)) = segments.split_first() else { return self.add(&node.exact) };
        if !node.literals.is_empty()
            && let Some(child) = node.literals.get(first.of(self.text))
        {
            self.visit(*child, rest);
        }
        if let Some(child) = node.parameter {
            self.visit(child, rest);
        }
    }

    fn add(&mut self, ends: &[(u32, u32)]) {
        let reading = self.reading;
        self.found.extend(ends.iter().map(|(flow, pattern)| IndexEntry {
            flow: *flow,
            pattern: *pattern,
            reading,
        }));
    }
}

/// Hasher for short names, eight bytes per step. The keys in the table come from the config, so clients
/// cannot cause collisions among them.
#[derive(Debug, Default)]
pub(super) struct ShortHasher(u64);

impl ShortHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for ShortHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        // The table uses both ends of the hash, and multiplication leaves the low bits weak.
        self.0 ^ (self.0 >> 32)
    }
}
