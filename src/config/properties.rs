//! The syntax of Java's `.properties` files, as `java.util.Properties.load` reads it.
//!
//! A line is `key=value`, `key:value` or `key value`; `#` and `!` start comments; a backslash at the end joins the next
//! line (without its leading white space); `\t \n \r \f`, `\u` with four hexadecimal digits and a backslash before any other character are escapes.

use std::collections::BTreeMap;
use std::path::Path;

use super::ConfigError;

/// Reads and parses a file; a later line of a key wins.
pub fn read(path: &Path) -> Result<BTreeMap<String, String>, ConfigError> {
    let refuse = |reason: String| ConfigError::File {
        path: path.to_owned(),
        reason,
    };
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    // Java reads Latin-1 there; a file that is valid UTF-8 surely means that, and the two agree on ASCII.
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => error.into_bytes().into_iter().map(char::from).collect(),
    };
    parse(&text).map_err(|(line, message)| ConfigError::Syntax {
        path: path.to_owned(),
        line,
        message,
    })
}

/// Parses `text`; the error names the line, from 1.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, (usize, String)> {
    let mut properties = BTreeMap::new();
    for (number, line) in logical_lines(text) {
        let (key, value) = split_key(&line);
        let key = unescape(key).map_err(|message| (number, message))?;
        let value = unescape(value).map_err(|message| (number, message))?;
        properties.insert(key, value);
    }
    Ok(properties)
}

/// `properties` in the form that [`parse`] reads, one line each.
pub fn format_line(key: &str, value: &str) -> String {
    let escape = |text: &str, is_key: bool| {
        let mut escaped = String::with_capacity(text.len());
        for (index, character) in text.chars().enumerate() {
            match character {
                '\\' => escaped.push_str("\\\\"),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                '\t' => escaped.push_str("\\t"),
                ' ' if is_key || index == 0 => escaped.push_str("\\ "),
                '=' | ':' | '#' | '!' => {
                    escaped.push('\\');
                    escaped.push(character);
                }
                character => escaped.push(character),
            }
        }
        escaped
    };
    format!("{}={}", escape(key, true), escape(value, false))
}

/// Lines with continuations joined, comments and blank ones dropped, each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let natural = text
        .split('\n')
        .flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'));
    for (index, line) in natural.enumerate() {
        let line = line.trim_start_matches([' ', '\t', '\u{c}']);
        if open.is_none() && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        let is_continued = backslashes % 2 == 1;
        let part = if is_continued {
            &line[..line.len() - 1]
        } else {
            line
        };
        let (number, mut joined) = open.take().unwrap_or_else(|| (index + 1, String::new()));
        joined.push_str(part);
        if is_continued {
            open = Some((number, joined));
        } else {
            lines.push((number, joined));
        }
    }
    lines.extend(open);
    lines.retain(|(_, line)| !line.is_empty());
    lines
}

/// Cuts at the first unescaped `=`, `:` or white space; one `=` or `:` may stand within that white space.
fn split_key(line: &str) -> (&str, &str) {
    let is_space = |character: char| matches!(character, ' ' | '\t' | '\u{c}');
    let mut is_escaped = false;
    let end = line
        .char_indices()
        .find(|(_, character)| {
            let ends = !is_escaped && (is_space(*character) || matches!(character, '=' | ':'));
            is_escaped = *character == '\\' && !is_escaped;
            ends
        })
        .map_or(line.len(), |(index, _)| index);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(is_space);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(is_space))
}

fn unescape(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // Escapes are UTF-16: a character beyond the first plane is two of them.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut buffer = [0; 2];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let plain = if character != '\\' {
            character
        } else {
            match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = characters.by_ref().take(4).collect();
                    let is_hexadecimal =
                        digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| is_hexadecimal);
                    units.push(unit.ok_or_else(|| "Malformed \\uxxxx encoding.".to_owned())?);
                    continue;
                }
                Some(other) => other,
                None => break,
            }
        };
        units.extend_from_slice(plain.encode_utf16(&mut buffer));
    }
    String::from_utf16(&units).map_err(|_| "Malformed \\uxxxx encoding.".to_owned())
}

#[cfg(test)]
#[path = "properties_test.rs"]
mod properties_test;
