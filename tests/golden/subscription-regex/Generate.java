// Writes patterns.txt: what RE2/J, as Apache Kafka 4.4.0 uses it for SubscribedTopicRegex, says to patterns, and which names they match as a whole.
//
//   java -cp 'LIBS/*' Generate.java | gzip -9n > patterns.txt.gz       (LIBS: the jars of org.apache.kafka:kafka_2.13:4.4.0)
//
// First line: the names, separated by spaces. Then a line a pattern: its UTF-8 in hex, a tab, and either "!" and the description of the error, or the
// names' numbers.
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Generate {
    static final String[] NAMES = {"a", "b", "ab", "abc", "aaa", "aab", "A", "AB", "k", "K", "s", "S", "z", "Z", "0", "7", "42", "a1", "1a", "foo", "foobar",
        "bar", "Foo", "FOO", "foo.bar", "foo-bar", "foo_bar", "foo.1", "_", "-", "...", "__consumer_offsets", "__transaction_state", "x-1.y_2", "aaaaaaaaaa",
        "ababab", "ba", "E", "Q", "p", "d", "w", "topic", "topic1", "topic-22", "orders.eu", "orders.us", "orders"};
    static final String[] HAND = {"", "a", "foo.*", "foo|bar", "^foo$", "^foo", "foo$", "^^foo$$", "(foo)(bar)?", "(?:foo)+", "(?P<n>foo)", "(?<n>foo)", "(?P<n>f)(?P<n>oo)",
        "(?<n>f)(?<n>oo)", "(?P<n", "(?P<>a)", "(?P<a b>a)", "(?P=n)", "(?P>n)", "(?<=a)b", "(?<!a)b", "(?=a)b", "(?!a)b", "(?>a)", "(?#a)b", "(?i)foo", "(?i:f)oo", "f(?i)oo", "(?i)f(?-i)oo",
        "(?i)f(?-i:oo)", "(a(?i)b)c", "(?m)^foo$", "(?s).*", "(?U)a+", "(?U)a+?", "(?x)a b", "(?ims)foo", "(?i-s)foo", "(?-i)foo", "(?-)a", "(?)a", "(?i", "(?i:a", "(?", "(?a)", "(?i-)a", "(?--i)a", "(?-i-s)a",
        "(", ")", "(a", "a)", "((a)", "(a))", "()", "(|a)", "(a|)", "|", "a|", "|a", "a||b", "||", "()*", "(())", "[", "]", "[]", "[]a]", "[^]a]", "[^]", "[a", "[a-", "[a-]", "[-a]", "[--a]", "[a-b-c]", "[a-b-]", "[+--]",
        "[z-a]", "[a-a]", "[a\\-z]+", "[\\w.-]+", "[^\\w]", "[\\W\\w]", "[\\d]+", "[\\D]+", "[\\s]", "[\\S]+", "[\\pL]+", "[\\p{Lu}]+", "[\\P{Lu}]+", "[\\p{^Lu}]+", "[\\P{^Lu}]+", "[[:alpha:]]+", "[[:^alpha:]]+",
        "[[:alnum:]]+", "[[:ascii:]]+", "[[:blank:]]", "[[:cntrl:]]", "[[:digit:]]+", "[[:graph:]]+", "[[:lower:]]+", "[[:print:]]+", "[[:punct:]]+", "[[:space:]]", "[[:upper:]]+", "[[:word:]]+", "[[:xdigit:]]+", "[[:foo:]]",
        "[[:alpha:]", "[[:alpha]", "[[:alpha", "[:alpha:]+", "[[a]]", "[[a]", "[a[b]", "[a&&b]", "[a--b]", "[a~~b]", "[\\b]", "[\\Q]", "[\\E]", "[\\A]", "[\\z]", "[\\]]", "[\\[]", "[\\\\]", "[\\", "[\\a\\f\\n\\r\\t\\v]", "[\\x41]", "[\\x{41}-\\x{43}]+",
        "[\\101]", "[\\1]", "[\\d-z]+", "[a-\\d]", "[[:alpha:]-z]", "*", "+", "?", "*a", "a**", "a*+", "a*?", "a*??", "a+*", "a?*", "a??", "a???", "a{2}", "a{2}{3}", "a{2}*", "a{2}?", "a{2}??", "a{2,}", "a{2,3}", "a{,3}",
        "a{3,2}", "a{0}", "a{0,0}", "a{1000}", "a{1001}", "a{1,1001}", "a{1001,}", "a{99999999999}", "a{100000000}", "a{02}", "a{2", "a{2,", "a{2,3", "a{", "a{}", "a{a}", "a{ 2}", "a{-1}", "{2}", "{", "}", "a}", "a{2}{", "(a{100}){100}", "(a{1000}){1000}", "((a{10}){10}){10}", "((a{10}){10}){11}",
        "(a{500}){3}", "(a*){1000}", "|*", "(*)", "(|*)", "(?i)*", "a(?i)*", "a*(?i)*", "^*", "^*foo", "$*", "\\b*foo", "\\bfoo\\b", "\\Bfoo", "foo\\b\\.bar", "foo\\B\\.bar", "\\A", "\\Afoo\\z", "foo\\Z", "\\G", "\\C", "\\C+", "\\Q", "\\Qfoo", "\\Qfoo.bar\\E", "\\Qfoo\\E\\.bar",
        "\\Q\\E*", "a\\Q\\E*", "a*\\Q\\E*", "\\Qab\\E+", "\\E", "a\\E", "\\Q(*\\E", "\\Q\\\\E", "\\", "a\\", "\\d+", "\\D+", "\\s", "\\S+", "\\w+", "\\W+", "\\h", "\\H", "\\R", "\\X", "\\K", "\\N", "\\e", "\\g", "\\i", "\\j", "\\k<n>", "\\l", "\\L", "\\m", "\\o", "\\q", "\\u0041", "\\U", "\\y",
        "\\0", "\\00", "\\101", "\\1", "\\12", "\\18", "\\8", "\\9", "\\077", "\\777", "\\1011", "\\x41", "\\x4", "\\x", "\\x{41}", "\\x{}", "\\x{4", "\\x{110000}", "\\x{10FFFF}", "\\x{zz}", "\\xzz", "\\x{000041}", "\\.", "\\-", "\\_", "\\ ", "\\\u00e9", "\\/", "\\@", "\\a", "\\f", "\\n", "\\r", "\\t", "\\v", "\\cA",
        "\\p", "\\pL+", "\\pN+", "\\pZ", "\\PL+", "\\p{L}+", "\\p{Lu}+", "\\p{Ll}+", "\\P{Ll}+", "\\p{^Ll}+", "\\p{Greek}", "\\p{Latin}+", "\\p{Common}+", "\\p{Inherited}", "\\p{greek}", "\\p{Foo}", "\\p{", "\\p{}", "\\p{L", "\\pX", "\\p{Any}+", "\\p{IsGreek}", "\\p{Alphabetic}", "\\p{Pc}+", "\\p{Pd}+", "\\p{Po}+",
        "\\p{P}+", "\\p{S}", "\\p{Sc}", "\\p{Nd}+", "\\p{Nl}", "\\p{No}", "\\p{C}", "\\p{Cc}", "\\p{Cn}", "\\p{Z}", "\\p{Zs}", "\\p{M}", "\\p{Lo}", "\\p{Lt}", "\\p{Lm}", "\\p{LC}", "\\p{Han}", "\\p{Cyrillic}", "\\pé", "(?i)\\p{Lu}+", "(?i)[[:upper:]]+", "(?i)[a-c]+", "(?i)[^a-c]+", "(?i)\u017f", "(?i)\u212a", "(?i)[\u017f\u212a]", "(?i)k",
        "\u00e9", "[\u00e9a]", "[^\u00e9]", "\ud83d\ude00", "[a-\ud83d\ude00]+", "a.c", "...", ".+", ".*\\.eu", "orders\\.(eu|us)", "__.*", "^__.*", "[^_].*", "topic-\\d{2}", "topic(-\\d+)?", "a{1,3}b?", "(ab)+", "(?i)FOO.*", "foo[._-]bar", "x-\\d\\.y_\\d", "a\nb", " a", "a ", "a#b", "a&b", "a~b", "a-b", "/foo/", "foo,bar", "\"a\"", "<a>", "%", "@", "=", "!", ";", ":", "'", "`", "a`b",
        "((((((((((a))))))))))", "[a-zA-Z0-9._-]{1,249}", "(?i)(a|B)(c|D)?", "[[:word:][:punct:]]+", "[^[:^alpha:]]+", "[^\\d\\W]+", "(a)|b", "a(b|c)d|e", "(?P<x>a)(?<y>b)", "(?P<1>a)", "(?P<_x>a)", "(?P<a-b>c)", "(?P<n>", "(?P<é>a)", "(?Pn>a)", "(?'n'a)", "a(?#", "(?i)(?-i)K", "(?is)", "(?s-i:A)", "(?^:a)", "a++", "a?+", "a{2}+", "[a-c]*[^a-c]+", "\\Q[\\E", "(?U:a*)"};
    static final String[] TOKENS = {"a", "b", "c", "foo", "bar", "k", "Z", "0", "1", ".", ".", "*", "+", "?", "|", "(", ")", "(?:", "(?i)", "(?i:", "(?-i)", "(?P<n>", "^", "$", "[", "]", "[^", "-", "a-z", "A-Z", "0-9", "\\d", "\\w", "\\W", "\\s", "\\b", "\\B", "\\.",
        "\\-", "\\Q", "\\E", "{", "}", "{2}", "{1,3}", "{2,}", "{0}", ",", "\\pL", "\\p{Lu}", "\\P{Nd}", "[:alpha:]", "[[:digit:]]", "[[:^upper:]]", "_", "\\x41", "\\101", "\\1", "\\", "[a-f]", "[\\w.-]", "&&", "\\A", "\\z", "é", "\\S"};

    public static void main(String[] args) {
        System.out.println(String.join(" ", NAMES));
        LinkedHashSet<String> patterns = new LinkedHashSet<>(Arrays.asList(HAND));
        Random random = new Random(44);
        while (patterns.size() < 6000) {
            StringBuilder pattern = new StringBuilder();
            int length = 2 + random.nextInt(7);
            for (int i = 0; i < length; i++) pattern.append(TOKENS[random.nextInt(TOKENS.length)]);
            patterns.add(pattern.toString());
        }
        for (String pattern : patterns) {
            StringBuilder hex = new StringBuilder();
            for (byte b : pattern.getBytes(StandardCharsets.UTF_8)) hex.append(String.format("%02x", b));
            System.out.println(hex + "\t" + answer(pattern));
        }
    }

    static String answer(String text) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(text);
        } catch (PatternSyntaxException error) {
            return "!" + error.getDescription();
        } catch (Throwable error) {
            return "!!" + error;
        }
        StringJoiner matched = new StringJoiner(",");
        for (int i = 0; i < NAMES.length; i++) if (pattern.matcher(NAMES[i]).matches()) matched.add("" + i);
        return matched.toString();
    }
}
