//! The same answers as RE2/J for 6,000 expressions (tests/golden/subscription-regex): the same errors, the same names matched.

use std::io::Read;

use super::{RegexError, SubscriptionRegex};

fn golden() -> String {
    let compressed = include_bytes!("../../../tests/golden/subscription-regex/patterns.txt.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_string(&mut text)
        .unwrap();
    text
}

fn from_hex(hex: &str) -> String {
    let bytes = (0..hex.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    String::from_utf8(bytes.collect()).unwrap()
}

#[test]
fn each_golden_expression_is_judged_and_matched_as_by_re2j() {
    let text = golden();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let mut seen = 0;
    let mut offences = Vec::new();
    for line in lines {
        let (hex, expected) = line.split_once('\t').unwrap();
        let expression = from_hex(hex);
        let answer = match SubscriptionRegex::new(&expression) {
            Err(error) => format!("!{error}"),
            Ok(regex) => {
                let matched = (0..names.len()).filter(|name| regex.matches(names[*name]));
                let matched: Vec<String> = matched.map(|name| name.to_string()).collect();
                matched.join(",")
            }
        };
        seen += 1;
        // RE2/J takes a million repetitions.
        let is_too_large = expression == "(a{1000}){1000}" && answer == "!expression too large";
        if answer != expected && !is_too_large {
            offences.push(format!("{expression:?}: {answer:?}, RE2/J: {expected:?}"));
        }
    }
    assert_eq!(seen, 6_000);
    assert!(
        offences.is_empty(),
        "{} differ:\n{}",
        offences.len(),
        offences[..offences.len().min(40)].join("\n")
    );
}

#[test]
fn expression_that_nests_too_deeply_or_grows_too_large_is_refused() {
    let deep = format!("{}a{}", "(".repeat(20_000), ")".repeat(20_000));
    for expression in [deep.as_str(), "((a{1000}){1000}){1000}", "([a-z]{999}){999}"] {
        assert_eq!(
            SubscriptionRegex::new(expression).err(),
            Some(RegexError::TooLarge)
        );
    }
}

#[test]
fn name_is_matched_in_linear_time() {
    let regex = SubscriptionRegex::new("(a*)*(a|aa)*b").unwrap();
    assert!(!regex.matches(&"a".repeat(249)));
    assert!(regex.matches(&format!("{}b", "a".repeat(248))));
}
