//! Reads an expression by RE2's rules (Perl syntax on) and writes it for the crate `regex`. Pure.
//!
//! What comes out has only groups without names, alternatives, repetitions, classes of ASCII characters, and `\A`, `\z`, `\b`, `\B`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::RegexError;
use super::ascii_set::AsciiSet;

const REPEAT_MAX: u32 = 1000;
const CODE_POINT_MAX: u32 = 0x10ffff;

/// A group that is open.
struct Group {
    /// Whether case counts, behind the group.
    fold_outside: bool,
    /// Where the present alternative's last atom begins in the output; `None`: there is nothing to repeat.
    last_atom: Option<usize>,
}

struct Parser<'a> {
    rest: &'a str,
    out: String,
    groups: Vec<Group>,
    last_atom: Option<usize>,
    fold: bool,
    names: BTreeSet<&'a str>,
}

pub fn parse(expression: &str) -> Result<String, RegexError> {
    let mut parser = Parser {
        rest: expression,
        out: String::new(),
        groups: Vec::new(),
        last_atom: None,
        fold: false,
        names: BTreeSet::new(),
    };
    let mut is_after_repeat = false;
    while let Some(next) = parser.rest.chars().next() {
        is_after_repeat = parser.step(next, is_after_repeat)?;
    }
    match parser.groups.is_empty() {
        true => Ok(parser.out),
        false => Err(RegexError::MissingParenthesis),
    }
}

impl<'a> Parser<'a> {
    /// Reads one element; whether it was a repetition (or is taken for one).
    fn step(&mut self, next: char, is_after_repeat: bool) -> Result<bool, RegexError> {
        match next {
            '(' if self.rest.starts_with("(?") => self.perl_group()?,
            '(' => {
                self.skip(1);
                self.open(self.fold);
            }
            '|' => {
                self.skip(1);
                self.out.push('|');
                self.last_atom = None;
            }
            ')' => self.close()?,
            '^' => self.look(1, r"\A"),
            '$' => self.look(1, r"\z"),
            '.' => {
                self.skip(1);
                self.atom(AsciiSet::ALL);
            }
            '[' => self.class()?,
            '*' | '+' | '?' => {
                self.skip(1);
                self.repeat(&next.to_string(), is_after_repeat)?;
                return Ok(true);
            }
            '{' => match self.counts()? {
                Some(counts) => {
                    self.repeat(&counts, is_after_repeat)?;
                    return Ok(true);
                }
                // RE2/J takes what follows a literal brace for a repetition of a repetition.
                None => {
                    self.skip(1);
                    self.literal('{');
                    return Ok(true);
                }
            },
            '\\' => self.backslash()?,
            literal => {
                self.skip(literal.len_utf8());
                self.literal(literal);
            }
        }
        Ok(false)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.skip(next.len_utf8());
        Some(next)
    }

    fn atom(&mut self, set: AsciiSet) {
        self.last_atom = Some(self.out.len());
        set.write(&mut self.out);
    }

    fn literal(&mut self, character: char) {
        let code = u32::from(character);
        self.atom(AsciiSet::range(code..=code, self.fold));
    }

    fn look(&mut self, bytes: usize, assertion: &str) {
        self.skip(bytes);
        self.last_atom = Some(self.out.len());
        self.out.push_str("(?:");
        self.out.push_str(assertion);
        self.out.push(')');
    }

    fn open(&mut self, fold_inside: bool) {
        self.groups.push(Group {
            fold_outside: self.fold,
            last_atom: Some(self.out.len()),
        });
        self.out.push_str("(?:");
        self.fold = fold_inside;
        self.last_atom = None;
    }

    fn close(&mut self) -> Result<(), RegexError> {
        self.skip(1);
        let group = self.groups.pop().ok_or(RegexError::UnexpectedParenthesis)?;
        self.out.push(')');
        self.fold = group.fold_outside;
        self.last_atom = group.last_atom;
        Ok(())
    }

    fn repeat(&mut self, operator: &str, is_after_repeat: bool) -> Result<(), RegexError> {
        // A lazy repetition matches the same names.
        if self.rest.starts_with('?') {
            self.skip(1);
        }
        if is_after_repeat {
            return Err(RegexError::NestedRepetition);
        }
        let start = self.last_atom.ok_or(RegexError::MissingRepeatArgument)?;
        // `a*(?i)*` repeats a repetition.
        self.out.insert_str(start, "(?:");
        self.out.push_str(operator);
        self.out.push(')');
        Ok(())
    }

    /// `{2}`, `{2,}` or `{2,3}`; `None`: it is no repetition, the brace stands for itself.
    fn counts(&mut self) -> Result<Option<String>, RegexError> {
        let Some((inside, rest)) = self.rest.get(1..).and_then(|inside| inside.split_once('}')) else {
            return Ok(None);
        };
        let (least, most) = match inside.split_once(',') {
            Some((least, "")) => (count(least), Some(None)),
            Some((least, most)) => (count(least), count(most).map(Some)),
            None => (count(inside), count(inside).map(Some)),
        };
        let (Some(least), Some(most)) = (least, most) else {
            return Ok(None);
        };
        if least > REPEAT_MAX || most.is_some_and(|most| most > REPEAT_MAX || most < least) {
            return Err(RegexError::RepeatCount);
        }
        self.rest = rest;
        Ok(Some(match most {
            Some(most) => format!("{{{least},{most}}}"),
            None => format!("{{{least},}}"),
        }))
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` or `(?flags:`.
    fn perl_group(&mut self) -> Result<(), RegexError> {
        let named = self.rest.strip_prefix("(?P<").or(self.rest.strip_prefix("(?<"));
        if let Some(named) = named {
            let (name, rest) = named.split_once('>').ok_or(RegexError::NamedCapture)?;
            let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(RegexError::NamedCapture);
            }
            if !self.names.insert(name) {
                return Err(RegexError::DuplicateName);
            }
            self.rest = rest;
            self.open(self.fold);
            return Ok(());
        }
        self.skip(2);
        let (mut fold, mut clears, mut is_flag_seen) = (self.fold, false, false);
        loop {
            match self.take() {
                Some('i') => {
                    fold = !clears;
                    is_flag_seen = true;
                }
                Some('m' | 's' | 'U') => is_flag_seen = true,
                Some('-') if !clears => {
                    clears = true;
                    is_flag_seen = false;
                }
                Some(end @ (':' | ')')) if !clears || is_flag_seen => {
                    match end {
                        ':' => self.open(fold),
                        _ => self.fold = fold,
                    }
                    return Ok(());
                }
                _ => return Err(RegexError::PerlSyntax),
            }
        }
    }

    fn backslash(&mut self) -> Result<(), RegexError> {
        let mut characters = self.rest.chars().skip(1);
        match characters.next() {
            Some('A') => self.look(2, r"\A"),
            Some('z') => self.look(2, r"\z"),
            Some('b') => self.look(2, r"\b"),
            Some('B') => self.look(2, r"\B"),
            Some('C') => return Err(RegexError::Escape),
            Some('Q') => {
                self.skip(2);
                let (quoted, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
                self.rest = rest;
                quoted.chars().for_each(|character| self.literal(character));
            }
            _ => {
                if let Some(set) = self.escaped_class()? {
                    self.atom(set);
                } else {
                    let code = self.escape()?;
                    self.atom(AsciiSet::range(code..=code, self.fold));
                }
            }
        }
        Ok(())
    }

    /// `\pN`, `\p{Name}`, `\d` and their like.
    fn escaped_class(&mut self) -> Result<Option<AsciiSet>, RegexError> {
        let Some(letter) = self.rest.strip_prefix('\\').and_then(|rest| rest.chars().next()) else {
            return Ok(None);
        };
        if !matches!(letter, 'p' | 'P') {
            let set = AsciiSet::perl(letter);
            if set.is_some() {
                self.skip(2);
            }
            return Ok(set);
        }
        self.skip(2);
        let rest = self.rest;
        let first = self.take().ok_or(RegexError::CharacterRange)?;
        let name = match first {
            '{' => {
                let (name, after) = self.rest.split_once('}').ok_or(RegexError::CharacterRange)?;
                self.rest = after;
                name
            }
            _ => &rest[..first.len_utf8()],
        };
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name, false),
        };
        AsciiSet::unicode(name, self.fold, is_negated != (letter == 'P'))
            .map(Some)
            .ok_or(RegexError::CharacterRange)
    }

    /// The code point of an escaped character; the backslash is next.
    fn escape(&mut self) -> Result<u32, RegexError> {
        self.skip(1);
        let escaped = self.take().ok_or(RegexError::TrailingBackslash)?;
        match escaped {
            // One digit that is not 0 would be a reference to a group.
            '1'..='7' if !self.rest.starts_with(|next| matches!(next, '0'..='7')) => Err(RegexError::Escape),
            '0'..='7' => {
                let mut code = u32::from(escaped) - u32::from('0');
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|next| next.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    self.skip(1);
                }
                Ok(code)
            }
            'x' => self.hexadecimal(),
            'a' => Ok(0x07),
            'f' => Ok(0x0c),
            'n' => Ok(0x0a),
            'r' => Ok(0x0d),
            't' => Ok(0x09),
            'v' => Ok(0x0b),
            other if !other.is_ascii_alphanumeric() => Ok(u32::from(other)),
            _ => Err(RegexError::Escape),
        }
    }

    fn hexadecimal(&mut self) -> Result<u32, RegexError> {
        let digits = match self.rest.strip_prefix('{') {
            Some(braced) => {
                let (digits, after) = braced.split_once('}').ok_or(RegexError::Escape)?;
                self.rest = after;
                digits
            }
            None => {
                let digits = self.rest.get(..2).ok_or(RegexError::Escape)?;
                self.skip(2);
                digits
            }
        };
        let mut code = 0u32;
        for digit in digits.chars() {
            let digit = digit.to_digit(16).ok_or(RegexError::Escape)?;
            code = code.saturating_mul(16).saturating_add(digit);
        }
        match digits.is_empty() || code > CODE_POINT_MAX {
            true => Err(RegexError::Escape),
            false => Ok(code),
        }
    }

    fn class(&mut self) -> Result<(), RegexError> {
        self.skip(1);
        let is_negated = self.rest.starts_with('^');
        if is_negated {
            self.skip(1);
        }
        let mut set = AsciiSet::EMPTY;
        // A bracket that comes first stands for itself.
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            set = set.or(self.class_part()?);
        }
        self.skip(1);
        self.atom(match is_negated {
            true => set.negated(),
            false => set,
        });
        Ok(())
    }

    fn class_part(&mut self) -> Result<AsciiSet, RegexError> {
        if self.rest.starts_with("[:")
            && let Some(end) = self.rest.get(2..).and_then(|name| name.find(":]"))
        {
            let (posix, after) = self.rest.split_at(end + 4);
            self.rest = after;
            return AsciiSet::posix(posix, self.fold).ok_or(RegexError::CharacterRange);
        }
        if let Some(set) = self.escaped_class()? {
            return Ok(set);
        }
        let range = self.class_range()?;
        match range.is_empty() {
            true => Err(RegexError::CharacterRange),
            false => Ok(AsciiSet::range(range, self.fold)),
        }
    }

    fn class_range(&mut self) -> Result<RangeInclusive<u32>, RegexError> {
        let first = self.class_character()?;
        let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1;
        if !is_range {
            return Ok(first..=first);
        }
        self.skip(1);
        Ok(first..=self.class_character()?)
    }

    fn class_character(&mut self) -> Result<u32, RegexError> {
        match self.rest.chars().next() {
            None => Err(RegexError::MissingBracket),
            Some('\\') => self.escape(),
            Some(character) => {
                self.skip(character.len_utf8());
                Ok(u32::from(character))
            }
        }
    }
}

/// A number as RE2 takes it in braces; none has a 0 in front.
fn count(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit());
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    (is_number && !is_padded).then(|| digits.parse().unwrap_or(u32::MAX))
}
