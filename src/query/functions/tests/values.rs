//! Documentation of functions of texts, URLs, numbers and times, and of conditions.

use crate::functions::tests::Row;

/// See the head of this file.
pub(super) const TEXTS: &[Row] = &[
    (
        "`lengthUTF8(s)`, `lowerUTF8(s)`, `upperUTF8(s)`, `lcase(s)`, `ucase(s)`, `reverseUTF8(s)`",
        "characters; small and capital letters; from the end to the beginning",
        &[
            ("lcase('A')", "a"),
            ("ucase('a')", "A"),
            ("reverseUTF8('ClickHouse')", "esuoHkcilC"),
            ("lengthUTF8('é')", "1"),
            ("lowerUTF8('MÜNCHEN')", "münchen"),
            ("upperUTF8('münchen')", "MÜNCHEN"),
        ],
    ),
    (
        "`substringUTF8(s, n)`, `substringUTF8(s, n, m)`, `mid(s, n, m)`, `leftUTF8(s, n)`, `rightUTF8(s, n)`",
        "parts of a text by characters",
        &[
            ("substringUTF8('database', 5)", "base"),
            ("mid('database', 1, 4)", "data"),
            ("leftUTF8('Hello', 2)", "He"),
            ("rightUTF8('Hello', 2)", "lo"),
        ],
    ),
    (
        "`leftPad(s, n, c)`, `rightPad(s, n, c)`, `leftPadUTF8(s, n, c)`, `rightPadUTF8(s, n, c)`, `space(n)`, `appendTrailingCharIfAbsent(s, c)`",
        "filled up with other characters; blanks; with a character at the end",
        &[
            ("leftPadUTF8('дверь', 7, '*')", "**дверь"),
            ("rightPadUTF8('дверь', 7, '*')", "дверь**"),
            ("concat('[', space(3), ']')", "[   ]"),
            ("appendTrailingCharIfAbsent('https://example.com', '/')", "https://example.com/"),
            ("appendTrailingCharIfAbsent('a/', '/')", "a/"),
            ("appendTrailingCharIfAbsent('', '/')", ""),
            ("leftPad('abc', 7, '*')", "****abc"),
            ("rightPad('abc', 7, '*')", "abc****"),
        ],
    ),
    (
        "`trimLeft(s)`, `trimRight(s)`, `trimBoth(s)`",
        "without blanks",
        &[("trimLeft('  a ')", "a "), ("trimRight(' a ')", " a"), ("trimBoth(' a ')", "a")],
    ),
    (
        "`position(s, t)`, `positionUTF8(s, t)`, `positionCaseInsensitive(s, t)`, `positionCaseInsensitiveUTF8(s, t)`",
        "where a text stands from 1 on, or 0",
        &[
            ("position('Hello, world!', '!')", "13"),
            ("positionUTF8('Motörhead', 'r')", "5"),
            ("positionCaseInsensitive('Hello, world!', 'hello')", "1"),
            ("positionCaseInsensitiveUTF8('ÄB', 'b')", "2"),
        ],
    ),
    (
        "`multiSearchAny(s, [t, ...])`, `multiSearchAnyCaseInsensitive(s, [t, ...])`",
        "whether any of several texts stands there",
        &[
            ("multiSearchAny('ClickHouse', ['C', 'H'])", "true"),
            ("multiSearchAny('ClickHouse', ['x'])", "false"),
            ("multiSearchAnyCaseInsensitive('ClickHouse', ['c', 'h'])", "true"),
        ],
    ),
    (
        "`multiSearchAllPositions(s, [t, ...])`, `multiSearchAllPositionsCaseInsensitive(s, [t, ...])`, `multiSearchFirstPosition(s, [t, ...])`, `multiSearchFirstIndex(s, [t, ...])`",
        "where each of them stands; where the first one does; which one that is",
        &[
            ("multiSearchAllPositions('Hello, World!', ['hello', '!', 'world'])", "[0, 13, 0]"),
            ("multiSearchAllPositionsCaseInsensitive('ClickHouse', ['c', 'h'])", "[1, 6]"),
            ("multiSearchFirstPosition('Hello World', ['llo', 'Wor', 'ld'])", "3"),
            ("multiSearchFirstIndex('Hello World', ['World', 'Hello'])", "2"),
        ],
    ),
    (
        "`multiMatchAny(s, ['pattern', ...])`",
        "whether any of several patterns matches",
        &[
            ("multiMatchAny('Hello, World!', ['\\d+', 'lo, W'])", "true"),
            ("multiMatchAny('abc', ['x|y', '^b'])", "false"),
        ],
    ),
    (
        "`countMatches(s, p)`, `countMatchesCaseInsensitive(s, p)`, `countSubstringsCaseInsensitive(s, t)`",
        "how often a pattern matches, or a text stands there",
        &[
            ("countMatches('foobar.com', 'o+')", "2"),
            ("countMatches('abcx', 'x*')", "1"),
            ("countMatchesCaseInsensitive('AaaA', 'aa')", "2"),
            ("countSubstringsCaseInsensitive('AAAA', 'aa')", "2"),
        ],
    ),
    (
        "`extractAll(s, p)`, `extractGroups(s, p)`, `regexpExtract(s, p, n)`, `regexpQuoteMeta(s)`",
        "the first group of each match, or all of each; all groups of the first match; one of them, the first unless it is said which; the pattern of a text itself",
        &[
            ("extractAll('hello number 1 hello number 2', '\\d+')", "[1, 2]"),
            ("extractAll('a=1, b=2', '(\\w)=')", "[a, b]"),
            ("extractAll('abc', '\\d')", "[]"),
            ("extractGroups('hello abc=111 world', '(\\w+)=(\\w+)')", "[abc, 111]"),
            ("regexpExtract('100-200', '(\\d+)-(\\d+)', 1)", "100"),
            ("regexpExtract('100-200', '(\\d+)-(\\d+)', 0)", "100-200"),
            ("regexpExtract('100-200', '(\\d+)-(\\d+)')", "100"),
            ("regexpQuoteMeta('Hello. [World]? (Yes)*')", "Hello\\. \\[World\\]\\? \\(Yes\\)\\*"),
        ],
    ),
    (
        "`extractAllGroups(s, p)`, `extractAllGroupsVertical(s, p)`, `extractAllGroupsHorizontal(s, p)`",
        "the groups of each match; all matches of each group",
        &[
            (
                "extractAllGroupsVertical('abc=111, def=222, ghi=333', '(\\w+)=(\\w+)')",
                "[[abc, 111], [def, 222], [ghi, 333]]",
            ),
            ("extractAllGroups('a=1, b=2', '(\\w)=(\\d)')", "[[a, 1], [b, 2]]"),
            (
                "extractAllGroupsHorizontal('abc=111, def=222, ghi=333', '(\\w+)=(\\w+)')",
                "[[abc, def, ghi], [111, 222, 333]]",
            ),
        ],
    ),
    (
        "`editDistance(s, t)`, `levenshteinDistance(s, t)`",
        "how many characters differ",
        &[
            ("editDistance('clickhouse', 'mouse')", "6"),
            ("levenshteinDistance('clickhouse', 'mouse')", "6"),
        ],
    ),
    (
        "`format(pattern, x, ...)`",
        "texts in the places of `{}`, or `{0}`, of a pattern that is written out",
        &[
            ("format('{1} {0} {1}', 'World', 'Hello')", "Hello World Hello"),
            ("format('{} {}', 'Hello', 'World')", "Hello World"),
            ("format('{{{}}}', 5)", "{5}"),
        ],
    ),
    (
        "`hex(s)`, `unhex(s)`, `base64Encode(s)`, `base64Decode(s)`, `tryBase64Decode(s)`",
        "bytes as digits, and back; of what is no text in base 64 the last one is empty",
        &[
            ("hex('abc')", "616263"),
            ("unhex('4D7953514C')", "MySQL"),
            ("base64Encode('clickhouse')", "Y2xpY2tob3VzZQ=="),
            ("base64Decode('Y2xpY2tob3VzZQ==')", "clickhouse"),
            ("tryBase64Decode('invalid')", ""),
        ],
    ),
    (
        "`SHA224(s)`, `SHA256(s)`, `SHA384(s)`, `SHA512(s)`",
        "digests, as bytes",
        &[
            ("hex(SHA224('abc'))", "23097D223405D8228642A477BDA255B32AADBCE4BDA0B3F7E36C9DA7"),
            (
                "hex(SHA256('abc'))",
                "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
            ),
            ("left(hex(SHA384('abc')), 16)", "CB00753F45A35E8B"),
            ("left(hex(SHA512('abc')), 16)", "DDAF35A193617ABA"),
        ],
    ),
    (
        "`countSubstrings(s, t)`",
        "how often a text stands there",
        &[("countSubstrings('aaaa', 'aa')", "2")],
    ),
    (
        "`like(s, p)`, `notLike(s, p)`, `ilike(s, p)`, `notILike(s, p)`",
        "as the operators",
        &[
            ("like('abc', 'a%')", "true"),
            ("notLike('abc', 'a%')", "false"),
            ("ilike('ABC', 'a%')", "true"),
            ("notILike('ABC', 'a%')", "false"),
        ],
    ),
    (
        "`match(s, p)`, `s =~ p`, `s =~* p`, `s !~ p`",
        "whether a pattern matches; `*`: without case",
        &[
            ("match('abc', '^a')", "true"),
            ("'abc' =~ '^B'", "false"),
            ("'abc' =~* '^A'", "true"),
            ("'abc' !~ '^b'", "true"),
        ],
    ),
    (
        "`extract(s, p)`",
        "the first group of a pattern, or all that matches; an empty text if nothing does",
        &[
            ("extract('number: 1, number: 2', '\\d+')", "1"),
            ("extract('utm_source=x', 'utm_(\\w+)=')", "source"),
            ("extract('abc', '\\d')", ""),
        ],
    ),
    (
        "`replaceOne(s, t, u)`, `replaceAll(s, t, u)`, `replaceRegexpOne(s, p, u)`, `replaceRegexpAll(s, p, u)`, `translateUTF8(s, from, to)`, `substringIndex(s, t, n)`",
        "with another text in the place of one; characters in the place of others; what stands before the nth of a text",
        &[
            ("translateUTF8('Münchener Straße', 'üß', 'us')", "Munchener Strase"),
            ("substringIndex('www.clickhouse.com', '.', 2)", "www.clickhouse"),
            ("replaceOne('aba', 'a', 'c')", "cba"),
            ("replaceAll('aba', 'a', 'c')", "cbc"),
            ("replaceRegexpOne('aba', 'a', 'c')", "cba"),
            ("replaceRegexpAll('Hello, World!', 'l', 'x')", "Hexxo, Worxd!"),
        ],
    ),
    (
        "`splitByChar(t, s)`, `splitByString(t, s)`, `splitByRegexp(p, s)`, `splitByWhitespace(s)`, `splitByNonAlpha(s)`, `splitByAlpha(s)`, `alphaTokens(s)`",
        "an array of parts",
        &[
            ("splitByRegexp('\\d+', 'a12bc23de345f')", "[a, bc, de, f]"),
            ("splitByRegexp('', 'abcde')", "[a, b, c, d, e]"),
            ("splitByNonAlpha('user@domain.com')", "[user, domain, com]"),
            ("splitByAlpha('abca1abc')", "[abca, abc]"),
            ("alphaTokens('abca1abc')", "[abca, abc]"),
            ("splitByChar(',', '1,2,3')", "[1, 2, 3]"),
            ("splitByString(', ', '1, 2')", "[1, 2]"),
            ("splitByWhitespace('  1!  a ')", "[1!, a]"),
        ],
    ),
    (
        "`startsWith(s, t)`, `endsWith(s, t)`",
        "how a text begins or ends",
        &[("startsWith('Spider-Man', 'Spi')", "true"), ("endsWith('abc', 'b')", "false")],
    ),
    (
        "`transform(x, [from...], [to...], else)`",
        "a value for each of others",
        &[
            ("transform(2, [1, 2], ['one', 'two'], 'many')", "two"),
            ("transform('c', ['a'], ['b'], 'z')", "z"),
        ],
    ),
];

/// See the head of this file.
pub(super) const URLS: &[Row] = &[
    (
        "`protocol(u)`, `domain(u)`, `domainWithoutWWW(u)`, `topLevelDomain(u)`",
        "parts of a URL; an empty text if they are not there",
        &[
            ("protocol('https://clickhouse.com/')", "https"),
            ("domain('svn+ssh://some.svn-hosting.com:80/repo/trunk')", "some.svn-hosting.com"),
            ("domain('//example.com/a')", "example.com"),
            ("domainWithoutWWW('http://paul@www.example.com:80/')", "example.com"),
            ("topLevelDomain('svn+ssh://www.some.svn-hosting.com:80/repo/trunk')", "com"),
        ],
    ),
    (
        "`netloc(u)`, `port(u)`, `queryStringAndFragment(u)`",
        "the user, the host and the port; the port alone, or 0; what stands behind `?`, and `#` with what is behind it",
        &[
            ("netloc('http://paul@www.example.com:80/')", "paul@www.example.com:80"),
            ("port('http://paul@www.example.com:80/')", "80"),
            ("port('https://clickhouse.com')", "0"),
            ("queryStringAndFragment('http://a.com/b?c=d#e')", "c=d#e"),
            ("queryStringAndFragment('http://a.com/b#e')", "#e"),
        ],
    ),
    (
        "`path(u)`, `pathFull(u)`, `queryString(u)`, `fragment(u)`",
        "what stands behind the host",
        &[
            ("path('https://example.com/a/b?c=d#e')", "/a/b"),
            ("path('https://example.com')", ""),
            (
                "pathFull('https://clickhouse.com/docs/?query=value#section')",
                "/docs/?query=value#section",
            ),
            ("queryString('https://example.com/?page=1&lr=213#x')", "page=1&lr=213"),
            ("fragment('https://clickhouse.com/docs#frag')", "frag"),
        ],
    ),
    (
        "`cutQueryString(u)`, `cutFragment(u)`, `cutQueryStringAndFragment(u)`, `cutWWW(u)`",
        "without such a part",
        &[
            ("cutQueryString('http://example.com/a?b=c#d')", "http://example.com/a#d"),
            ("cutFragment('http://example.com?a#b')", "http://example.com?a"),
            ("cutQueryStringAndFragment('http://example.com?a=b#c')", "http://example.com"),
            ("cutWWW('http://www.example.com/')", "http://example.com/"),
        ],
    ),
    (
        "`extractURLParameter(u, n)`, `extractURLParameters(u)`, `extractURLParameterNames(u)`, `cutURLParameter(u, n)`",
        "parameters",
        &[
            (
                "extractURLParameter('http://example.com/?param1=value1&param2=value2', 'param1')",
                "value1",
            ),
            ("extractURLParameter('http://example.com/', 'a')", ""),
            ("extractURLParameters('http://example.com/?a=1&b=2')", "[a=1, b=2]"),
            ("extractURLParameterNames('http://example.com/?a=1&b=2')", "[a, b]"),
            ("cutURLParameter('http://e.com/?a=1&b=2#c', 'a')", "http://e.com/?b=2#c"),
        ],
    ),
    (
        "`decodeURLComponent(u)`, `encodeURLComponent(s)`, `decodeURLFormComponent(u)`, `encodeURLFormComponent(s)`",
        "`%` and the code of a byte; of forms also `+` for a blank",
        &[
            (
                "decodeURLFormComponent('http://127.0.0.1:8123/?query=SELECT%201+2%2B3')",
                "http://127.0.0.1:8123/?query=SELECT 1 2+3",
            ),
            (
                "encodeURLFormComponent('http://127.0.0.1:8123/?query=SELECT 1 2+3')",
                "http%3A%2F%2F127.0.0.1%3A8123%2F%3Fquery%3DSELECT+1+2%2B3",
            ),
            (
                "decodeURLComponent('http://127.0.0.1:8123/?query=SELECT%201%3B')",
                "http://127.0.0.1:8123/?query=SELECT 1;",
            ),
            ("encodeURLComponent('a b/ü')", "a%20b%2F%C3%BC"),
        ],
    ),
];

/// See the head of this file.
pub(super) const NUMBERS: &[Row] = &[
    (
        "`toInt(x)`, `toInt8(x)`, `toInt16(x)`, `toInt32(x)`, `toInt64(x)`, `toUInt(x)`, `toUInt8(x)`, `toUInt16(x)`, `toUInt32(x)`, `toUInt64(x)`",
        "a whole number, null if it is none; with `OrNull`, `OrZero` (0 if it is none), `OrDefault`",
        &[
            ("toInt('12')", "12"),
            ("toInt('x')", "NULL"),
            ("toIntOrZero('x')", "0"),
            ("toInt64OrNull('x')", "NULL"),
            ("toInt32OrDefault('x', 7)", "7"),
            ("toIntOrZero(NULL)", "NULL"),
        ],
    ),
    (
        "`toFloat(x)`, `toFloat32(x)`, `toFloat64(x)`, `toDecimal(x, n)`",
        "a number, with the same endings",
        &[
            ("toFloat('1.5')", "1.5"),
            ("toFloatOrZero('x')", "0.0"),
            ("toFloat64OrNull('x')", "NULL"),
            ("toFloatOrDefault('x', 2.5)", "2.5"),
            ("toDecimal('1.25', 2)", "1.25"),
        ],
    ),
    (
        "`toBool(x)`",
        "true or false of a text or a number, or null",
        &[("toBool('true')", "true"), ("toBool(0)", "false"), ("toBool('x')", "NULL")],
    ),
    (
        "`toString(x)`, `toUUID(x)`",
        "a text",
        &[
            ("toString(12)", "12"),
            (
                "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')",
                "61f0c404-5cb3-11e7-907b-a6006ad3dba0",
            ),
        ],
    ),
    (
        "`intDivOrZero(x, y)`, `moduloOrZero(x, y)`, `positiveModulo(x, y)`",
        "the same, 0 if y is; the rest that is not negative",
        &[
            ("intDivOrZero(1, 0)", "0"),
            ("intDivOrZero(7, 2)", "3"),
            ("moduloOrZero(5, 0)", "0"),
            ("positiveModulo(-1, 10)", "9"),
        ],
    ),
    (
        "`intDiv(x, y)`, `modulo(x, y)`",
        "the quotient cut off at its point, and the rest",
        &[("intDiv(7, 2)", "3"), ("intDiv(-7, 2)", "-3"), ("modulo(7, 2)", "1")],
    ),
    (
        "`plus(x, y)`, `minus(x, y)`, `multiply(x, y)`, `divide(x, y)`, `negate(x)`",
        "as the operators; `divide` keeps the fraction",
        &[
            ("plus(1, 2)", "3"),
            ("minus(1, 2)", "-1"),
            ("multiply(2, 3)", "6"),
            ("divide(7, 2)", "3.5"),
            ("negate(3)", "-3"),
        ],
    ),
    (
        "`bitAnd(x, y)`, `bitOr(x, y)`, `bitXor(x, y)`, `bitShiftLeft(x, n)`, `bitShiftRight(x, n)`",
        "bits",
        &[
            ("bitAnd(6, 3)", "2"),
            ("bitOr(6, 3)", "7"),
            ("bitXor(6, 3)", "5"),
            ("bitShiftLeft(1, 4)", "16"),
            ("bitShiftRight(16, 2)", "4"),
        ],
    ),
    (
        "`bitTest(x, n)`, `exp2(x)`, `exp10(x)`, `e()`",
        "a bit; powers",
        &[
            ("bitTest(43, 1)", "1"),
            ("bitTest(43, 2)", "0"),
            ("exp2(3)", "8.0"),
            ("exp10(2)", "100.0"),
            ("round(e(), 4)", "2.7183"),
        ],
    ),
    (
        "`isFinite(x)`, `isInfinite(x)`, `ifNotFinite(x, y)`",
        "whether a number is one",
        &[
            ("isFinite(1.5)", "true"),
            ("isInfinite(CAST('inf' AS DOUBLE))", "true"),
            ("ifNotFinite(CAST('inf' AS DOUBLE), 42.0)", "42.0"),
            ("isFinite(CAST('nan' AS DOUBLE))", "false"),
        ],
    ),
    (
        "`max2(x, y)`, `min2(x, y)`, `sign(x)`, `truncate(x)`, `ceiling(x)`, `isNaN(x)`",
        "numbers",
        &[
            ("max2(1, 2)", "2"),
            ("min2(1, 2)", "1"),
            ("sign(-2.5)", "-1.0"),
            ("truncate(2.7)", "2.0"),
            ("ceiling(1.2)", "2.0"),
            ("isNaN(1.5)", "false"),
        ],
    ),
];

/// See the head of this file.
pub(super) const CONDITIONS: &[Row] = &[
    (
        "`if(c, x, y)`, `c ? x : y`, `multiIf(c, x, d, y, ..., z)`",
        "one of several values",
        &[
            ("if(1 > 2, 'a', 'b')", "b"),
            ("1 < 2 ? 'a' : 'b'", "a"),
            ("multiIf(false, 1, true, 2, 3)", "2"),
        ],
    ),
    (
        "`ifNull(x, y)`, `x ?? y`, `isNull(x)`, `isNotNull(x)`",
        "null",
        &[
            ("ifNull(NULL, 3)", "3"),
            ("NULL ?? 'a'", "a"),
            ("isNull(NULL)", "true"),
            ("isNotNull(1)", "true"),
        ],
    ),
    (
        "`equals(x, y)`, `notEquals(x, y)`, `less(x, y)`, `lessOrEquals(x, y)`, `greater(x, y)`, `greaterOrEquals(x, y)`",
        "as the operators",
        &[
            ("equals(1, 1)", "true"),
            ("notEquals(1, 1)", "false"),
            ("less(1, 2)", "true"),
            ("lessOrEquals(2, 2)", "true"),
            ("greater(1, 2)", "false"),
            ("greaterOrEquals(2, 2)", "true"),
        ],
    ),
    (
        "`and(c, d, ...)`, `or(c, d, ...)`, `xor(c, d)`",
        "conditions together",
        &[
            ("and(true, 1 < 2, false)", "false"),
            ("or(false, true)", "true"),
            ("xor(true, true)", "false"),
        ],
    ),
    (
        "`assumeNotNull(x)`, `toNullable(x)`, `identity(x)`, `materialize(x)`",
        "the value itself",
        &[
            ("assumeNotNull(1)", "1"),
            ("toNullable('a')", "a"),
            ("identity(2)", "2"),
            ("materialize(3)", "3"),
        ],
    ),
    (
        "`x IN [a, ...]`, `x NOT IN [a, ...]`, `in(x, [a, ...])`, `notIn(x, [a, ...])`",
        "whether a value is one of others",
        &[
            ("in(1, [1, 2])", "true"),
            ("in('a', ('b', 'c'))", "false"),
            ("notIn(3, [1, 2])", "true"),
            ("1 IN [1, 2]", "true"),
            ("1 NOT IN [1, 2]", "false"),
        ],
    ),
    (
        "`WITH x AS name SELECT ...`",
        "a name for an expression",
        &[("name + 1 FROM (WITH 2 AS two SELECT two AS name)", "3")],
    ),
];

/// See the head of this file.
pub(super) const TIMES: &[Row] = &[
    (
        "`toDate(t)`, `toDate32(t)`, `toDateTime(t)`, `toDateTime(t, zone)`, `toDateTime64(t)`, `toDateTime64(t, digits)`, `toDateTime64(t, digits, zone)`, `toDateOrNull(t)`, `toDateTimeOrNull(t)`",
        "a date, a time; of 0, 3, 6 or more digits of seconds; a text without an offset is of the zone",
        &[
            ("toString(toDate32('2016-12-27'))", "2016-12-27"),
            ("toDateTime('2016-12-27 14:10:05', 'Asia/Tokyo')", "2016-12-27T05:10:05Z"),
            ("toDateTime64('2016-12-27 14:10:05.123456', 3)", "2016-12-27T14:10:05.123Z"),
            ("toDateTime64('2016-12-27 14:10:05.5', 6, 'Asia/Tokyo')", "2016-12-27T05:10:05.500Z"),
            ("toString(toDate(toDateTime('2016-12-27 14:10:05')))", "2016-12-27"),
            ("toDateTimeOrNull('x')", "NULL"),
            ("toDateTime64('2016-12-27 14:10:05')", "2016-12-27T14:10:05Z"),
            ("toString(toDateOrNull('2016-12-27'))", "2016-12-27"),
        ],
    ),
    (
        "`parseDateTimeBestEffort(s)`, `parseDateTimeBestEffortOrNull(s)`, `parseDateTime64BestEffort(s)`, `parseDateTime64BestEffortOrNull(s)`",
        "a time of a text in ISO 8601; another text is an error, or null",
        &[
            ("parseDateTimeBestEffort('2016-12-27 14:10:05')", "2016-12-27T14:10:05Z"),
            ("parseDateTimeBestEffortOrNull('x')", "NULL"),
            ("parseDateTime64BestEffort('2016-12-27 14:10:05')", "2016-12-27T14:10:05Z"),
            ("parseDateTime64BestEffortOrNull('x')", "NULL"),
        ],
    ),
    (
        "`toStartOfSecond(t)`, `toStartOfMinute(t)`, `toStartOfFiveMinutes(t)`, `toStartOfTenMinutes(t)`, `toStartOfFifteenMinutes(t)`, `timeSlot(t)`, `toStartOfHour(t)`, `toStartOfDay(t)`, `toStartOfWeek(t)`, `toMonday(t)`, `toStartOfMonth(t)`, `toStartOfQuarter(t)`, `toStartOfYear(t)`, `toStartOfISOYear(t)`, `toStartOfInterval(t, INTERVAL n unit)`",
        "when the unit began; of `timeSlot` half an hour",
        &[
            (
                "formatDateTime(toStartOfTenMinutes(toDateTime('2023-04-21 10:20:00')), '%F %T')",
                "2023-04-21 10:20:00",
            ),
            ("formatDateTime(timeSlot(toDateTime('2023-04-21 10:47:00')), '%T')", "10:30:00"),
            (
                "formatDateTime(toStartOfISOYear(toDateTime('2023-04-21 10:20:00')), '%F')",
                "2023-01-02",
            ),
            (
                "formatDateTime(toStartOfISOYear(toDateTime('2021-01-02 00:00:00')), '%F')",
                "2019-12-30",
            ),
            (
                "formatDateTime(toStartOfMonth(toDateTime('2016-12-27 14:10:05')), '%F %T')",
                "2016-12-01 00:00:00",
            ),
            (
                "formatDateTime(toStartOfInterval(toDateTime('2016-12-27 14:17:05'), INTERVAL 10 minute), '%T')",
                "14:10:00",
            ),
        ],
    ),
    (
        "`toYear(t)`, `toQuarter(t)`, `toMonth(t)`, `toDayOfYear(t)`, `toDayOfMonth(t)`, `toDayOfWeek(t)`, `toHour(t)`, `toMinute(t)`, `toSecond(t)`",
        "parts of a time",
        &[
            ("toYear(toDateTime('2016-12-27 14:10:05'))", "2016"),
            ("toDayOfWeek(toDateTime('2016-12-27 14:10:05'))", "2"),
            ("toSecond(toDateTime('2016-12-27 14:10:05'))", "5"),
        ],
    ),
    (
        "`toYYYYMM(t)`, `toYYYYMMDD(t)`, `toYYYYMMDDhhmmss(t)`",
        "a time as a number",
        &[
            ("toYYYYMM(toDateTime('2016-12-27 14:10:05'))", "201612"),
            ("toYYYYMMDD(toDateTime('2016-12-27 14:10:05'))", "20161227"),
            ("toYYYYMMDDhhmmss(toDateTime('2016-12-27 14:10:05'))", "20161227141005"),
        ],
    ),
    (
        "`toWeek(t)`, `toISOWeek(t)`, `toISOYear(t)`, `monthName(t)`",
        "the week of a year: from Sunday, where the first one has the first Sunday, and that of ISO 8601, with its year; the name of a month",
        &[
            ("toISOYear(toDateTime('2021-01-02 00:00:00'))", "2020"),
            ("monthName(toDateTime('2021-04-14 11:22:33'))", "April"),
            ("toWeek(toDateTime('2016-12-27 00:00:00'))", "52"),
            ("toISOWeek(toDateTime('2016-12-27 00:00:00'))", "52"),
            ("toWeek(toDateTime('2018-01-01 00:00:00'))", "0"),
        ],
    ),
    (
        "`formatDateTime(t, format)`, `formatDateTime(t, format, zone)`",
        "a time as text",
        &[
            (
                "formatDateTime(toDateTime('2010-01-04 02:03:04'), '%g %Y-%m-%d %H:%i:%S')",
                "10 2010-01-04 02:03:04",
            ),
            (
                "formatDateTime(toDateTime('2018-01-02 22:33:44'), '%D %R %p %j %e %M %W')",
                "01/02/18 22:33 PM 002  2 January Tuesday",
            ),
            ("formatDateTime(toDateTime('2018-01-02 22:33:44'), '%T', 'Asia/Tokyo')", "07:33:44"),
        ],
    ),
    (
        "`toTimeZone(t, zone)`",
        "the same time elsewhere",
        &[(
            "toTimeZone(toDateTime('2016-12-27 14:10:05'), 'Asia/Tokyo')",
            "2016-12-27T23:10:05+09:00",
        )],
    ),
    (
        "`toUnixTimestamp(t)`, `fromUnixTimestamp(n)`, `toUnixTimestamp64Milli(t)`, `fromUnixTimestamp64Milli(n)`, `toUnixTimestamp64Micro(t)`, `fromUnixTimestamp64Micro(n)`, `toUnixTimestamp64Nano(t)`",
        "seconds, and shorter ones, since 1970",
        &[
            (
                "toUnixTimestamp64Micro(toDateTime('2009-02-13 23:31:31.011123'))",
                "1234567891011123",
            ),
            (
                "toUnixTimestamp64Nano(toDateTime('2009-02-13 23:31:31.011123'))",
                "1234567891011123000",
            ),
            ("fromUnixTimestamp64Micro(1234567891011123)", "2009-02-13T23:31:31.011123Z"),
            ("toUnixTimestamp(toDateTime('2017-11-05 08:07:47'))", "1509869267"),
            ("toUnixTimestamp64Milli(toDateTime('2009-02-13 23:31:31.011'))", "1234567891011"),
            ("formatDateTime(fromUnixTimestamp(423543535), '%F %T')", "1983-06-04 02:58:55"),
            (
                "formatDateTime(fromUnixTimestamp64Milli(1234567891011), '%F %T')",
                "2009-02-13 23:31:31",
            ),
        ],
    ),
    (
        "`toLastDayOfMonth(t)`",
        "a date",
        &[("toString(toLastDayOfMonth(toDateTime('2024-02-03 00:00:00')))", "2024-02-29")],
    ),
    (
        "`dateAdd(t, INTERVAL ...)`, `dateAdd(unit, n, t)`, `dateSub(...)`, `date_add(...)`, `date_sub(...)`, `timestampAdd(...)`, `timestamp_add(...)`, `timestampSub(...)`, `timestamp_sub(...)`, `addDays(t, n)`, `subtractDays(t, n)` and so on, `toIntervalDay(n)`",
        "a time before or after",
        &[
            (
                "formatDateTime(dateAdd(year, 3, toDateTime('2018-01-01 00:00:00')), '%F')",
                "2021-01-01",
            ),
            (
                "formatDateTime(date_sub(day, 1, toDateTime('2018-01-01 00:00:00')), '%F')",
                "2017-12-31",
            ),
            (
                "formatDateTime(timestampAdd(toDateTime('2018-01-01 00:00:00'), INTERVAL 3 MONTH), '%F')",
                "2018-04-01",
            ),
            (
                "formatDateTime(addQuarters(toDateTime('2018-01-01 00:00:00'), 2), '%F')",
                "2018-07-01",
            ),
            ("formatDateTime(addDays(toDateTime('2018-01-01 00:00:00'), 2), '%F')", "2018-01-03"),
        ],
    ),
    (
        "`dateDiff(unit, from, to)`, `date_diff(unit, from, to)`",
        "borders of a unit between two times",
        &[
            (
                "dateDiff('hour', toDateTime('2018-01-01 22:00:00'), toDateTime('2018-01-02 23:00:00'))",
                "25",
            ),
            (
                "dateDiff('quarter', toDateTime('2017-12-31 23:59:59'), toDateTime('2018-04-01 00:00:00'))",
                "2",
            ),
            (
                "date_diff('day', toDateTime('2017-12-31 23:59:59'), toDateTime('2018-01-01 00:00:00'))",
                "1",
            ),
        ],
    ),
    (
        "`age(unit, from, to)`",
        "whole units that have gone by",
        &[
            (
                "age('hour', toDateTime('2018-01-01 22:30:00'), toDateTime('2018-01-02 23:00:00'))",
                "24",
            ),
            (
                "age('month', toDateTime('2018-01-31 00:00:00'), toDateTime('2018-03-01 00:00:00'))",
                "1",
            ),
            (
                "age('year', toDateTime('2017-12-31 00:00:00'), toDateTime('2018-12-30 00:00:00'))",
                "0",
            ),
        ],
    ),
    (
        "`now()`, `now64(digits)`, `nowInBlock()`, `UTCTimestamp()`, `makeDate(y, m, d)`, `today()`, `yesterday()`, `generateUUIDv4()`",
        "of now; a date of its parts; a new id",
        &[
            ("now64(3) >= now('UTC')", "true"),
            ("nowInBlock() = UTCTimestamp()", "true"),
            ("toString(makeDate(2023, 2, 28))", "2023-02-28"),
            ("today() > yesterday()", "true"),
            ("now64() > toDateTime('2018-01-01 00:00:00')", "true"),
            ("length(toString(generateUUIDv4()))", "36"),
        ],
    ),
    (
        "`denseRank()`, `percentRank()` OVER (...)",
        "`dense_rank` and `percent_rank`",
        &[
            (
                "r FROM (SELECT n, denseRank() OVER (ORDER BY n) AS r FROM (VALUES (1), (2), (1)) AS v (n)) ORDER BY r",
                "1, 1, 2",
            ),
            (
                "r FROM (SELECT n, percentRank() OVER (ORDER BY n) AS r FROM (VALUES (1), (2), (3)) AS v (n)) ORDER BY r",
                "0.0, 0.5, 1.0",
            ),
        ],
    ),
    (
        "`lagInFrame(x, n)`, `leadInFrame(x, n)` OVER (... ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        "the value of another row, null if there is none",
        &[
            (
                "l FROM (SELECT n, lagInFrame(n, 1) OVER (ORDER BY n) AS l FROM (VALUES (1), (2)) AS v (n)) ORDER BY n",
                "NULL, 1",
            ),
            (
                "l FROM (SELECT n, leadInFrame(n) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM (VALUES (1), (2)) AS v (n)) ORDER BY n",
                "2, NULL",
            ),
        ],
    ),
];
