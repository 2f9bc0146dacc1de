//! Properties of the encoder and the decoder, tested on random fields and bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::static_table::STATIC;
use super::{Decoder, Encoder, FieldList, FieldName, Indexing, huffman};

/// A field, and the table's part in it.
type Sent = (Vec<u8>, Vec<u8>, Indexing);

fn text(bytes: &'static str) -> BoxedStrategy<Vec<u8>> {
    bytes.prop_map(String::into_bytes).boxed()
}

fn sent() -> impl Strategy<Value = Sent> {
    let of_table = (0..STATIC.len()).prop_map(|at| {
        let (name, value) = STATIC[at].split();
        (name.to_vec(), value.to_vec())
    });
    let name = prop_oneof![
        3 => (0..STATIC.len()).prop_map(|at| STATIC[at].split().0.to_vec()),
        2 => text(":protocol|te|x-api-key|x-[ab]|[a-z0-9-]{1,20}"),
    ];
    let value = prop_oneof![
        4 => text("[a-c]{0,2}"),
        2 => text("[ -~]{0,150}"),
        2 => vec(any::<u8>(), 0..50),
        1 => vec(any::<u8>(), 3_900..4_100),
    ];
    let index =
        prop_oneof![4 => Just(Indexing::Add), 1 => Just(Indexing::Without), 1 => Just(Indexing::Never)];
    (prop_oneof![1 => of_table, 4 => (name, value)], index)
        .prop_map(|((name, value), index)| (name, value, index))
}

/// Sizes of the table that are set before a block, and its fields.
fn blocks() -> impl Strategy<Value = Vec<(Vec<usize>, Vec<Sent>)>> {
    let size = prop_oneof![Just(0), 30_usize..300, 300_usize..5_000];
    let sizes = prop_oneof![4 => Just(Vec::new()), 1 => vec(size, 1..4)];
    vec((sizes, vec(sent(), 0..12)), 1..12)
}

/// Bytes that look like a block.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        2 => (0x80_u8..=0xff).prop_map(|index| vec![index]),
        1 => vec(any::<u8>(), 1..4),
        2 => (0x40_u8..0x7f, vec(any::<u8>(), 0..9)).prop_map(|(index, value)| literal(index, &value)),
        1 => (0x00_u8..0x1f, vec(any::<u8>(), 0..9)).prop_map(|(index, value)| literal(index, &value)),
        1 => (0x20_u8..0x40).prop_map(|size| vec![size]),
    ];
    vec(part, 0..30).prop_map(|parts| parts.concat())
}

fn literal(index: u8, value: &[u8]) -> Vec<u8> {
    let len = u8::try_from(value.len()).unwrap();
    [&[index, len][..], value].concat()
}

proptest! {
    #[test]
    fn decoded_fields_are_those_that_were_encoded(blocks in blocks()) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4_096));
        let mut list = FieldList::new(usize::MAX, usize::MAX);
        for (sizes, sent) in &blocks {
            for bytes in sizes {
                encoder.set_peer_table_bytes(*bytes);
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value, index) in sent {
                encoder.encode(name, value, *index, &mut block);
            }
            list.clear();
            prop_assert_eq!(decoder.decode(&block, &mut list), Ok(()));
            prop_assert!(!list.is_too_large());
            prop_assert_eq!(list.iter().len(), sent.len());
            for (field, (name, value, index)) in list.iter().zip(sent) {
                prop_assert_eq!((field.name, field.value), (&name[..], &value[..]));
                prop_assert_eq!(field.is_never_indexed, *index == Indexing::Never);
                prop_assert_eq!(field.known, FieldName::of(name));
            }
        }
    }

    #[test]
    fn any_blocks_stay_within_the_bounds(
        blocks in vec(block(), 1..8),
        bytes_max in 0_usize..600,
        fields_max in 0_usize..9,
    ) {
        let mut decoder = Decoder::new(200);
        decoder.table.resize(200);
        let mut list = FieldList::new(bytes_max, fields_max);
        for block in &blocks {
            list.clear();
            let result = decoder.decode(block, &mut list);
            prop_assert!(decoder.table.bytes <= 200);
            prop_assert!(list.iter().len() <= fields_max);
            let size: usize = list.iter().map(|field| field.name.len() + field.value.len() + 32).sum();
            prop_assert!(size <= bytes_max);
            prop_assert!(list.iter().all(|field| field.known == FieldName::of(field.name)));
            // The connection ends with the first error.
            if result.is_err() {
                break;
            }
        }
    }

    #[test]
    fn a_huffman_code_stands_for_one_string(bytes in vec(prop_oneof![any::<u8>(), 0xf0_u8..=0xff], 0..60)) {
        let (mut text, mut code) = (Vec::new(), Vec::new());
        huffman::encode(&bytes, &mut code);
        prop_assert_eq!(code.len(), huffman::encoded_len(&bytes));
        prop_assert_eq!(huffman::decode(&code, &mut text), Ok(()));
        prop_assert_eq!(&text, &bytes);
        // The other way round, if the bytes are a code.
        text.clear();
        if huffman::decode(&bytes, &mut text).is_ok() {
            code.clear();
            huffman::encode(&text, &mut code);
            prop_assert_eq!(code, bytes);
        }
    }
}
