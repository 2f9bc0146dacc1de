//! The examples of RFC 7541, appendix C.

use data_encoding::HEXLOWER;

use super::{Decoder, Encoder, Error, Field, FieldList, Indexing};

/// A field as text.
fn line(field: Field<'_>) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(field.name), text(field.value))
}

/// A block of the appendix, its fields, and the size of the table after it.
type Example = (&'static str, Vec<(&'static str, &'static str)>, usize);

const REQUEST: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];

/// Decodes blocks that follow each other on a connection, with a table of this size.
fn decode_all(table_bytes: usize, examples: &[Example]) {
    let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(16_384, 128));
    decoder.table.resize(table_bytes);
    for (block, fields, bytes) in examples {
        list.clear();
        decoder.decode(&HEXLOWER.decode(block.as_bytes()).unwrap(), &mut list).unwrap();
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect();
        assert_eq!((list.iter().map(line).collect::<Vec<_>>(), decoder.table.bytes), (fields, *bytes));
        assert!(!list.is_too_large() && list.iter().all(|field| !field.is_never_indexed));
    }
}

/// Encodes the fields of blocks that follow each other on a connection, all for the table.
fn encode_all(table_bytes: usize, examples: &[Example]) {
    let mut encoder = Encoder::new();
    encoder.set_peer_table_bytes(table_bytes);
    encoder.begin(&mut Vec::new());
    for (block, fields, _) in examples {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in fields {
            encoder.encode(name.as_bytes(), value.as_bytes(), Indexing::Add, &mut out);
        }
        assert_eq!(HEXLOWER.encode(&out), *block);
    }
}

fn requests(blocks: [&'static str; 3]) -> Vec<Example> {
    let second = [&REQUEST[..], &[("cache-control", "no-cache")]].concat();
    let mut third = [&REQUEST[..], &[("custom-key", "custom-value")]].concat();
    third[1].1 = "https";
    third[2].1 = "/index.html";
    let fields = [REQUEST.to_vec(), second, third];
    blocks
        .into_iter()
        .zip(fields)
        .zip([57, 110, 164])
        .map(|((block, fields), size)| (block, fields, size))
        .collect()
}

fn responses(blocks: [&'static str; 3]) -> Vec<Example> {
    let first = vec![
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ];
    let mut second = first.clone();
    second[0].1 = "307";
    let mut third = first.clone();
    third[0].1 = "200";
    third[2].1 = "Mon, 21 Oct 2013 20:13:22 GMT";
    third.push(("content-encoding", "gzip"));
    third.push(("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"));
    let fields = [first, second, third];
    blocks
        .into_iter()
        .zip(fields)
        .zip([222, 222, 215])
        .map(|((block, fields), size)| (block, fields, size))
        .collect()
}

/// RFC 7541 §C.2.
#[test]
fn each_form_of_a_field_is_decoded() {
    let literal = "400a637573746f6d2d6b65790d637573746f6d2d686561646572";
    decode_all(4_096, &[(literal, vec![("custom-key", "custom-header")], 55)]);
    decode_all(4_096, &[("040c2f73616d706c652f70617468", vec![(":path", "/sample/path")], 0)]);
    decode_all(4_096, &[("82", vec![(":method", "GET")], 0)]);
    let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(16_384, 128));
    let secret = HEXLOWER.decode(b"100870617373776f726406736563726574").unwrap();
    assert_eq!(decoder.decode(&secret, &mut list), Ok::<_, Error>(()));
    assert_eq!(
        (list.iter().map(line).collect::<Vec<_>>(), decoder.table.bytes),
        (vec![("password".into(), "secret".into())], 0)
    );
    assert!(list.iter().all(|field| field.is_never_indexed));
}

/// RFC 7541 §C.3.
#[test]
fn requests_are_decoded() {
    decode_all(
        4_096,
        &requests([
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ]),
    );
}

/// RFC 7541 §C.4.
#[test]
fn requests_in_the_huffman_code_go_both_ways() {
    let examples = requests([
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ]);
    decode_all(4_096, &examples);
    encode_all(4_096, &examples);
}

/// RFC 7541 §C.5.
#[test]
fn responses_are_decoded_with_evictions() {
    decode_all(
        256,
        &responses([
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54\
             6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f\
             3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076\
             657273696f6e3d31",
        ]),
    );
}

/// RFC 7541 §C.6.
#[test]
fn responses_in_the_huffman_code_go_both_ways() {
    let first = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863\
                 c78f0b97c8e9ae82ae43d3";
    let third = "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b3\
                 35dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007";
    decode_all(256, &responses([first, "4883640effc1c0bf", third]));
    // The code of `307` is as long as the text, which is sent then.
    encode_all(256, &responses([first, "4803333037c1c0bf", third]));
}
