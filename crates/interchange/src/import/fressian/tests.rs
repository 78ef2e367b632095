#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use expect_test::expect;
use seatrial_machine::Rng;

/// Written by the reference encoder: `tests/data/jepsen/Fixtures.java`.
const VALUES: &[u8] = include_bytes!("../../../tests/data/jepsen/values.fressian");

/// All values, each on a line; long ones cut short.
fn printed(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut fressian = Fressian::new(bytes);
    let mut result = || {
        while fressian.more()? {
            let value = fressian.value()?.into_value().to_string();
            let length = value.chars().count();
            if length > 300 {
                let start: String = value.chars().take(60).collect();
                let sum = java_hash(&value[1..value.len() - 1]);
                writeln!(text, "{start}… {length} characters, {sum}").unwrap();
            } else {
                writeln!(text, "{value}").unwrap();
            }
        }
        Ok::<_, SyntaxFault>(())
    };
    if let Err(fault) = result() {
        writeln!(text, "{}: {}", fault.at, fault.problem).unwrap();
    }
    let escaped = |character: char| {
        if character.is_ascii() {
            character.to_string()
        } else {
            character.escape_unicode().to_string()
        }
    };
    text.chars().map(escaped).collect()
}

/// `String.hashCode` of Java.
fn java_hash(text: &str) -> i32 {
    let add = |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    text.encode_utf16().fold(0, add)
}

#[test]
fn all_kinds_of_values_of_the_reference_encoder() {
    expect![[r#"
        [0 0 -1]
        [1 -1 -2]
        [63 -63 -64]
        [64 -64 -65]
        [4095 -4095 -4096]
        [4096 -4096 -4097]
        [524287 -524287 -524288]
        [524288 -524288 -524289]
        [33554431 -33554431 -33554432]
        [33554432 -33554432 -33554433]
        [8589934591 -8589934591 -8589934592]
        [8589934592 -8589934592 -8589934593]
        [2199023255551 -2199023255551 -2199023255552]
        [2199023255552 -2199023255552 -2199023255553]
        [562949953421311 -562949953421311 -562949953421312]
        [562949953421312 -562949953421312 -562949953421313]
        [9223372036854775807 -9223372036854775807 -9223372036854775808]
        [true false nil 0.0 1.0 -2.5 0.10000000149011612 ##NaN ##-Inf]
        ["" "seven!!" "eight!!!" "\u{e9}\u{4e2d}" "a\u0000b" "\u{1f600} pair" "\u{fffd} lone"]
        "0123456789\u{1f600}0123456789\u{1f600}0123456789\u{1f600}0123456789\u{1f600}0123456789\u{1f600}0123\u{2026} 132002 characters, 948884224
        948884224
        [[] [1 -2 3] [0 0 0 0 0 0 0 0 0] 100000]
        [0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\u{2026} 140001 characters, -2102478048
        [1 2 3 4 5 6 7]
        [1 2 3 4 5 6 7 8]
        [1 "x"]
        [1 1048576 -1]
        [7]
        [0.5 0.0]
        [1.5]
        [true false]
        ["a" 1]
        {"a" 1, [1 2] {}}
        #{1 2 3}
        "00112233-4455-6677-8899-aabbccddeeff"
        "a+b"
        "http://example.org/x"
        ["1180591620717411303424" "-18446744073709551616" 10]
        [-12.75 3.0E10]
        ["1970-01-01T00:00:00.000-00:00" "2026-11-21T09:14:03.123-00:00" "1969-12-31T23:59:59.999-00:00" "2000-02-29T00:00:00.000-00:00"]
        [:word :space/word :symbol]
        ["\u{4e2d}" "1/3"]
        #{2 "b"}
        #{}
        [:k 1]
        {:a 2}
        {:cause "oh"}
        [5 "2026-11-21T09:14:03Z" 7]
        {:x 1}
        [1 "v"]
        [1 "two" [3]]
        {:index 5, :time 6200000001, :type :info, :process 1, :f :txn, :value [[:w "k" -7]], :error [:timeout "no answer"], :node "n1"}
        [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]
        "cached 0"
        "cached 1"
        "cached 2"
        "cached 3"
        "cached 4"
        "cached 5"
        "cached 6"
        "cached 7"
        "cached 8"
        "cached 9"
        "cached 10"
        "cached 11"
        "cached 12"
        "cached 13"
        "cached 14"
        "cached 15"
        "cached 16"
        "cached 17"
        "cached 18"
        "cached 19"
        "cached 20"
        "cached 21"
        "cached 22"
        "cached 23"
        "cached 24"
        "cached 25"
        "cached 26"
        "cached 27"
        "cached 28"
        "cached 29"
        "cached 30"
        "cached 31"
        "cached 32"
        "cached 33"
        "cached 34"
        "cached 35"
        "cached 36"
        "cached 37"
        "cached 38"
        "cached 39"
        [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]
        "cached 0"
        "cached 1"
        "cached 2"
        "cached 3"
        "cached 4"
        "cached 5"
        "cached 6"
        "cached 7"
        "cached 8"
        "cached 9"
        "cached 10"
        "cached 11"
        "cached 12"
        "cached 13"
        "cached 14"
        "cached 15"
        "cached 16"
        "cached 17"
        "cached 18"
        "cached 19"
        "cached 20"
        "cached 21"
        "cached 22"
        "cached 23"
        "cached 24"
        "cached 25"
        "cached 26"
        "cached 27"
        "cached 28"
        "cached 29"
        "cached 30"
        "cached 31"
        "cached 32"
        "cached 33"
        "cached 34"
        "cached 35"
        "cached 36"
        "cached 37"
        "cached 38"
        "cached 39"
        [:word :word]
        [:word :word]
    "#]].assert_eq(&printed(VALUES));
}

#[test]
fn what_the_reference_encoder_does_not_write() {
    // An open list that ends with the data, one that is closed, a map in an open list, a packed string as last chunk.
    assert_eq!(printed(b"\xee\x01\x02"), "[1 2]\n");
    assert_eq!(printed(b"\xee\x01\xfd\x05"), "[1]\n5\n");
    assert_eq!(printed(b"\xc0\xee\x01\x02\xfd"), "{1 2}\n");
    assert_eq!(printed(b"\xe2\x02ab\xdbc"), "\"abc\"\n");
    assert_eq!(printed(b"\xd8\x01\x07\xd1\x08"), "[7 8]\n");
    assert_eq!(printed(b"\xce\x05\x80\xcc\x00"), "5\n5\n5\n");
}

#[test]
fn faults_name_the_place() {
    let deep = [0xe5; 100];
    let mut doubling = vec![0xcd, 0xe8, 1, 2, 3, 4];
    for place in 0..60 {
        doubling.extend([0xcd, 0xe6, 0x80 + place.min(31), 0x80 + place.min(31)]);
    }
    let cases: [&[u8]; 18] = [
        b"\xfd",
        b"\xf1",
        b"\xfa\x00",
        b"\xe5",
        b"\xdb",
        b"\xe3\x7b\xff\xff\xff\xff\xff",
        b"\xe3\xff",
        b"\xec\x7b\xff\xff\xff\xff\xff\x01",
        b"\x80",
        b"\xa3",
        b"\xef\x01\x01",
        b"\xef\xdbx\x7b\xff\xff\xff\xff\xff",
        b"\xcd\xe5\x80",
        b"\xc0\xe5\x01",
        b"\xc3\x05",
        b"\xcf\xcf\x00",
        &deep,
        b"\xe2\x01a\x07",
    ];
    let mut text = String::new();
    for bytes in cases {
        text += &printed(bytes);
    }
    text += printed(&doubling).lines().last().unwrap();
    expect![[r#"
        0: a list ends that did not begin
        0: unknown code 0xf1
        1: 8 bytes are announced, 1 are left
        1: the data end inside a value
        1: 1 bytes are announced, 0 are left
        7: 2199023255551 bytes are announced, 0 are left
        1: a length of -1
        8: the data end inside a value
        0: cached value 0 of 0
        0: structure 3 of 0
        0: the tag of a structure is no text
        0: a structure of too many components
        2: a value that is part of itself
        0: this is no map
        0: this is no UUID
        1: 3 bytes are announced, 2 are left
        64: more than 64 levels of nesting
        3: a chunk without a last one
        73: more values come out of the caches than the data can hold"#]]
    .assert_eq(&text);
}

#[test]
fn text_in_java_units() {
    assert_eq!(text(b"\xed\xa0\xbd\xed\xb8\x80").unwrap(), "\u{1f600}");
    assert_eq!(text(b"a\xed\xa0\xbd").unwrap(), "a\u{fffd}");
    assert!(text(b"\xc3").is_err());
    assert!(text(b"\xc3\x28").is_err());
    assert!(text(b"\xf8\x80").is_err());
}

/// Reads arbitrary bytes to the end or to a fault; must neither panic nor hang.
fn fuzz_one(bytes: &[u8]) {
    let mut fressian = Fressian::new(bytes);
    while let Ok(true) = fressian.more() {
        match fressian.unless_operation() {
            Ok(Some(value)) => drop(value.into_value()),
            Ok(None) => {}
            Err(fault) => {
                assert!(fault.at <= bytes.len());
                return;
            }
        }
    }
}

#[test]
fn damaged_values_give_faults() {
    let mut rng = Rng::from_seed(3);
    // Without the long strings, which would only cost time.
    let head = VALUES.len() - 3_500;
    for _ in 0..20_000 {
        let start = head + rng.index(3_000);
        let end = (start + rng.index(400)).min(VALUES.len());
        let mut bytes = VALUES[start..end].to_vec();
        for _ in 0..rng.below(5) {
            let at = rng.index(bytes.len() + 1);
            match rng.below(3) {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = rng.word() as u8,
                _ => bytes.insert(at, rng.word() as u8),
            }
        }
        fuzz_one(&bytes);
        let noise: Vec<u8> = (0..rng.index(100)).map(|_| rng.word() as u8).collect();
        fuzz_one(&noise);
        // Codes of collections and caches are the interesting ones.
        let codes: Vec<u8> = (0..rng.index(100))
            .map(|_| 0x80 + rng.below(0x80) as u8)
            .collect();
        fuzz_one(&codes);
    }
}

#[test]
fn instants_are_shown_as_clojure_shows_them() {
    assert_eq!(instant(0), "1970-01-01T00:00:00.000-00:00");
    assert_eq!(instant(-1), "1969-12-31T23:59:59.999-00:00");
    assert_eq!(instant(951_782_400_250), "2000-02-29T00:00:00.250-00:00");
    assert_eq!(instant(i64::MAX), "9223372036854775807 ms since 1970");
    assert_eq!(instant(i64::MIN), "-9223372036854775808 ms since 1970");
}
