//! Sets of ASCII characters, and what of RE2's character classes is ASCII. Pure.

use std::ops::RangeInclusive;

/// The ASCII part of a character class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AsciiSet(u128);

/// U+017F, LATIN SMALL LETTER LONG S, is `s` without regard to case; U+212A, KELVIN SIGN, is `k`.
const LONG_S: u32 = 0x17f;
const KELVIN: u32 = 0x212a;

impl AsciiSet {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self(u128::MAX);

    /// Characters by code point, with both cases if `fold`.
    pub fn range(characters: RangeInclusive<u32>, fold: bool) -> Self {
        let mut set = Self::EMPTY;
        let ascii = *characters.start()..=(*characters.end()).min(0x7f);
        for character in ascii {
            set.0 |= 1 << character;
        }
        if !fold {
            return set;
        }
        if characters.contains(&LONG_S) {
            set = set.or(Self::of(b"s"));
        }
        if characters.contains(&KELVIN) {
            set = set.or(Self::of(b"k"));
        }
        set.folded()
    }

    fn of(characters: &[u8]) -> Self {
        let bits = characters.iter().map(|character| 1u128 << character);
        Self(bits.fold(0, |set, bit| set | bit))
    }

    fn matching(predicate: impl Fn(&u8) -> bool) -> Self {
        let characters: Vec<u8> = (0..=0x7f).filter(predicate).collect();
        Self::of(&characters)
    }

    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn negated(self) -> Self {
        Self(!self.0)
    }

    /// With the other case of each letter.
    fn folded(self) -> Self {
        let both = |letter: u8| {
            let pair = [letter, letter.to_ascii_uppercase()];
            match pair.iter().any(|letter| self.0 >> letter & 1 == 1) {
                true => Self::of(&pair),
                false => Self::EMPTY,
            }
        };
        (b'a'..=b'z').fold(self, |set, letter| set.or(both(letter)))
    }

    fn signed(self, fold: bool, negated: bool) -> Self {
        let set = match fold {
            true => self.folded(),
            false => self,
        };
        match negated {
            true => set.negated(),
            false => set,
        }
    }

    /// `\d` and its like, by the letter behind the backslash.
    pub fn perl(letter: char) -> Option<Self> {
        let set = match letter.to_ascii_lowercase() {
            'd' => Self::matching(u8::is_ascii_digit),
            's' => Self::of(b"\t\n\x0c\r "),
            'w' => Self::word(),
            _ => return None,
        };
        Some(set.signed(false, letter.is_ascii_uppercase()))
    }

    fn word() -> Self {
        Self::matching(u8::is_ascii_alphanumeric).or(Self::of(b"_"))
    }

    /// `[:name:]` by what stands between the brackets, with the colons; `None`: there is no such class.
    pub fn posix(text: &str, fold: bool) -> Option<Self> {
        let name = text.strip_prefix("[:")?.strip_suffix(":]")?;
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let set = match name {
            "alnum" => Self::matching(u8::is_ascii_alphanumeric),
            "alpha" => Self::matching(u8::is_ascii_alphabetic),
            "ascii" => Self::ALL,
            "blank" => Self::of(b"\t "),
            "cntrl" => Self::matching(u8::is_ascii_control),
            "digit" => Self::matching(u8::is_ascii_digit),
            "graph" => Self::matching(u8::is_ascii_graphic),
            "lower" => Self::matching(u8::is_ascii_lowercase),
            "print" => Self::matching(u8::is_ascii_graphic).or(Self::of(b" ")),
            "punct" => Self::matching(u8::is_ascii_punctuation),
            "space" => Self::of(b"\t\n\x0b\x0c\r "),
            "upper" => Self::matching(u8::is_ascii_uppercase),
            "word" => Self::word(),
            "xdigit" => Self::matching(u8::is_ascii_hexdigit),
            _ => return None,
        };
        Some(set.signed(fold, negated))
    }

    /// `\p{name}`; `None`: there is no such class.
    pub fn unicode(name: &str, fold: bool, negated: bool) -> Option<Self> {
        let set = match name {
            "Any" => Self::ALL,
            "Latin" | "L" => Self::matching(u8::is_ascii_alphabetic),
            "Common" => Self::matching(|character| !character.is_ascii_alphabetic()),
            "Ll" => Self::matching(u8::is_ascii_lowercase),
            "Lu" => Self::matching(u8::is_ascii_uppercase),
            "N" | "Nd" => Self::matching(u8::is_ascii_digit),
            "P" => Self::of(b"!\"#%&'()*,-./:;?@[\\]_{}"),
            "Pc" => Self::of(b"_"),
            "Pd" => Self::of(b"-"),
            "Pe" => Self::of(b")]}"),
            "Po" => Self::of(b"!\"#%&'*,./:;?@\\"),
            "Ps" => Self::of(b"([{"),
            "S" => Self::of(b"$+<=>^`|~"),
            "Sc" => Self::of(b"$"),
            "Sk" => Self::of(b"^`"),
            "Sm" => Self::of(b"+<=>|~"),
            "Z" | "Zs" => Self::of(b" "),
            "C" | "Cc" => Self::matching(u8::is_ascii_control),
            name if WITHOUT_ASCII.contains(&name) => Self::EMPTY,
            _ => return None,
        };
        // Only letters have cases: the classes without any are the same with `fold`.
        Some(set.signed(fold, negated))
    }

    /// As a class of the crate `regex`.
    pub fn write(self, out: &mut String) {
        if self == Self::EMPTY {
            // No byte at all.
            out.push_str(r"[^\x00-\xff]");
            return;
        }
        out.push('[');
        let mut characters = (0u8..0x80)
            .filter(|character| self.0 >> character & 1 == 1)
            .peekable();
        while let Some(first) = characters.next() {
            let mut last = first;
            while let Some(next) = characters.next_if_eq(&(last + 1)) {
                last = next;
            }
            out.push_str(&format!(r"\x{first:02x}-\x{last:02x}"));
        }
        out.push(']');
    }
}

/// Categories and scripts that RE2/J knows and that have no ASCII character.
const WITHOUT_ASCII: &[&str] = &[
    "Cf",
    "Co",
    "Cs",
    "Lm",
    "Lo",
    "Lt",
    "M",
    "Mc",
    "Me",
    "Mn",
    "Nl",
    "No",
    "Pf",
    "Pi",
    "So",
    "Zl",
    "Zp",
    "Arabic",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "Batak",
    "Bengali",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "Canadian_Aboriginal",
    "Carian",
    "Cham",
    "Cherokee",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Cyrillic",
    "Deseret",
    "Devanagari",
    "Egyptian_Hieroglyphs",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hanunoo",
    "Hebrew",
    "Hiragana",
    "Imperial_Aramaic",
    "Inherited",
    "Inscriptional_Pahlavi",
    "Inscriptional_Parthian",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Katakana",
    "Kayah_Li",
    "Kharoshthi",
    "Khmer",
    "Lao",
    "Lepcha",
    "Limbu",
    "Linear_B",
    "Lisu",
    "Lycian",
    "Lydian",
    "Malayalam",
    "Mandaic",
    "Meetei_Mayek",
    "Mongolian",
    "Myanmar",
    "New_Tai_Lue",
    "Nko",
    "Ogham",
    "Ol_Chiki",
    "Old_Italic",
    "Old_Persian",
    "Old_South_Arabian",
    "Old_Turkic",
    "Oriya",
    "Osmanya",
    "Phags_Pa",
    "Phoenician",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Shavian",
    "Sinhala",
    "Sundanese",
    "Syloti_Nagri",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "Tai_Le",
    "Tai_Tham",
    "Tai_Viet",
    "Tamil",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
    "Tifinagh",
    "Ugaritic",
    "Unknown",
    "Vai",
    "Yi",
];
