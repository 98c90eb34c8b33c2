//! Documentation of aggregates, and of functions of arrays and JSON.

use crate::functions::tests::Row;

/// See the head of this file.
pub(super) const AGGREGATES: &[Row] = &[
    (
        "`countIf(c)`, `countIf(x, c)`",
        "rows for which a condition holds",
        &[("countIf(n > 2)", "4"), ("countIf(plan, n > 2)", "2")],
    ),
    (
        "`sumIf(x, c)`, `avgIf(x, c)`, `minIf(x, c)`, `maxIf(x, c)`",
        "the same of these rows",
        &[
            ("sumIf(n, n > 4)", "11"),
            ("avgIf(n, n > 4)", "5.5"),
            ("minIf(n, n > 4)", "5"),
            ("maxIf(n, n < 4)", "3"),
        ],
    ),
    (
        "`uniq(x)`, `uniqExact(x)`, `uniqCombined(x)`, `uniqCombined64(x)`, `uniqHLL12(x)`, `uniqTheta(x)`, `countDistinct(x)`",
        "how many different values; exact under each name",
        &[("uniq(plan)", "3"), ("uniqExact(n)", "6"), ("countDistinct(n % 2)", "2")],
    ),
    (
        "`uniq(x, y, ...)`, and the others",
        "how many different values together, where none is null",
        &[("uniq(n % 2, n % 3)", "6"), ("uniqExact(plan, n % 2)", "3")],
    ),
    (
        "`uniqIf(x, c)`, `uniqExactIf(x, c)`, `countDistinctIf(x, c)`, `uniqHLL12If(x, c)`, `uniqThetaIf(x, c)`",
        "the same of some rows",
        &[
            ("uniqHLL12If(n % 2, n > 2)", "2"),
            ("uniqThetaIf(n % 2, n = 1)", "1"),
            ("uniqIf(plan, n > 2)", "2"),
            ("uniqExactIf(n, n > 2)", "4"),
            ("countDistinctIf(n, n > 4)", "2"),
        ],
    ),
    (
        "`uniqUpTo(m)(x)`",
        "the same up to m, and m + 1 for more",
        &[("uniqUpTo(2)(plan)", "3"), ("uniqUpTo(1)(n)", "2")],
    ),
    (
        "`argMax(x, k)`, `argMaxIf(x, k, c)`",
        "the x of the largest k, where neither is null",
        &[
            ("argMax(plan, n)", "team"),
            ("argMaxIf(plan, n, n < 5)", "pro"),
            ("argMax(n, plan)", "5"),
        ],
    ),
    (
        "`argMin(x, k)`, `argMinIf(x, k, c)`",
        "the x of the smallest k, where neither is null",
        &[("argMin(plan, n)", "free"), ("argMinIf(plan, n, n > 1)", "pro")],
    ),
    (
        "`groupArray(x)`, `groupArrayIf(x, c)`, `groupArray(m)(x)`, `groupArrayIf(m)(x, c)`",
        "an array of the values that are not null, at most m; an empty one of none",
        &[
            ("arraySort(groupArray(plan))", "[free, pro, team]"),
            ("length(groupArray(2)(plan))", "2"),
            ("groupArrayIf(plan, n > 5)", "[]"),
            ("groupArrayIf(1)(plan, n = 3)", "[pro]"),
        ],
    ),
    (
        "`groupUniqArray(x)`, `groupUniqArrayIf(x, c)`, `groupUniqArray(m)(x)`",
        "the same, each value once",
        &[
            ("arraySort(groupUniqArray(n % 2))", "[0, 1]"),
            ("groupUniqArrayIf(plan, n < 3)", "[free]"),
            ("length(groupUniqArray(2)(plan))", "2"),
        ],
    ),
    (
        "`any(x)`, `anyIf(x, c)`",
        "a value that is not null",
        &[("anyIf(plan, n = 3)", "pro"), ("any(n) > 0", "true")],
    ),
    (
        "`anyLast(x)`, `anyLastIf(x, c)`",
        "the last value that is not null",
        &[("anyLastIf(plan, n = 3)", "pro"), ("anyLast(n) > 0", "true")],
    ),
    (
        "`topK(m)(x)`, `topKIf(m)(x, c)`",
        "the m most frequent values, exact",
        &[("topK(1)(n % 3 = 0)", "[false]"), ("topKIf(2)(plan, n = 1)", "[free]")],
    ),
    (
        "`quantile(p)(x)`, `quantileIf(p)(x, c)`, `median(x)`, `medianIf(x, c)`",
        "the value at a level, linear between two; exact",
        &[
            ("quantile(0.5)(n)", "3.5"),
            ("quantileIf(0.5)(n, n > 3)", "5.0"),
            ("median(n)", "3.5"),
            ("medianIf(n, n > 3)", "5.0"),
        ],
    ),
    (
        "`quantiles(p, ...)(x)`, `quantilesIf(p, ...)(x, c)`",
        "the values at several levels",
        &[("quantiles(0, 1)(n)", "[1.0, 6.0]"), ("quantilesIf(0.5)(n, n > 3)", "[5.0]")],
    ),
    (
        "`stddevPop(x)`, `stddevSamp(x)`, `varPop(x)`, `varSamp(x)`",
        "deviation and variance",
        &[
            ("round(varSamp(n), 2)", "3.5"),
            ("round(varPop(n), 4)", "2.9167"),
            ("round(stddevSamp(n), 4)", "1.8708"),
            ("round(stddevPop(n), 4)", "1.7078"),
        ],
    ),
    (
        "`covarPop(x, y)`, `covarSamp(x, y)`",
        "covariance",
        &[("round(covarSamp(n, n), 2)", "3.5"), ("round(covarPop(n, n), 4)", "2.9167")],
    ),
    (
        "`stddevPopIf(x, c)`, `stddevSampIf(x, c)`, `varPopIf(x, c)`, `varSampIf(x, c)`, `covarPopIf(x, y, c)`, `covarSampIf(x, y, c)`",
        "the same of some rows",
        &[
            ("stddevPopIf(n, n < 4 AND n <> 2)", "1.0"),
            ("stddevSampIf(n, n < 4)", "1.0"),
            ("varPopIf(n, n = 1)", "0.0"),
            ("varSampIf(n, n < 4)", "1.0"),
            ("covarSampIf(n, n, n < 4)", "1.0"),
            ("covarPopIf(n, n, n = 1)", "0.0"),
        ],
    ),
    (
        "`sumWithOverflow(x)`",
        "the sum, which does not go on beyond its range",
        &[("sumWithOverflow(n)", "21")],
    ),
    (
        "`groupBitAndIf(x, c)`, `groupBitOrIf(x, c)`, `groupBitXorIf(x, c)`",
        "bits of some numbers together",
        &[
            ("groupBitAndIf(n, n > 5)", "6"),
            ("groupBitOrIf(n, n < 3)", "3"),
            ("groupBitXorIf(n, n < 4)", "0"),
        ],
    ),
    (
        "`groupBitAnd(x)`, `groupBitOr(x)`, `groupBitXor(x)`",
        "bits of all numbers together",
        &[("groupBitAnd(n)", "0"), ("groupBitOr(n)", "7"), ("groupBitXor(n)", "7")],
    ),
    (
        "`windowFunnel(s)(t, c1, c2, ...)`",
        "how many of the conditions held one after the other, all within s seconds from the first",
        &[
            ("windowFunnel(2)(toDateTime(n), n = 1, n = 3, n = 5)", "2"),
            ("windowFunnel(4)(toDateTime(n), n = 1, n = 3, n = 5)", "3"),
        ],
    ),
];

/// See the head of this file.
pub(super) const ARRAYS: &[Row] = &[
    (
        "`length(a)`",
        "elements of an array, or characters of a text",
        &[
            ("length([1, 2, 3])", "3"),
            ("length(splitByChar(',', 'aa,bb,cc'))", "3"),
            ("length('héllo')", "5"),
        ],
    ),
    (
        "`empty(a)`, `notEmpty(a)`",
        "whether an array or a text has nothing in it",
        &[
            ("empty([1])", "false"),
            ("empty('')", "true"),
            ("notEmpty([1])", "true"),
            ("notEmpty('a')", "true"),
        ],
    ),
    (
        "`reverse(a)`, `arrayReverse(a)`",
        "an array or a text from its end to its beginning",
        &[
            ("reverse([1, 2, 3])", "[3, 2, 1]"),
            ("reverse('abc')", "cba"),
            ("arrayReverse([1, 2])", "[2, 1]"),
        ],
    ),
    (
        "`concat(a, b, ...)`, `arrayConcat(a, b, ...)`",
        "arrays or texts one behind the other; a null is an empty text",
        &[
            ("concat([1], [2])", "[1, 2]"),
            ("concat('a', NULL, 'b')", "ab"),
            ("arrayConcat([1, 2], [3, 4])", "[1, 2, 3, 4]"),
        ],
    ),
    ("`arrayJoin(a)`", "a row for each element", &[("arrayJoin([1, 2])", "1, 2")]),
    (
        "`has(a, x)`, `hasAll(a, b)`, `hasAny(a, b)`",
        "whether elements are there",
        &[
            ("has([1, 2], 2)", "true"),
            ("hasAll([1, 2, 3], [1, 3])", "true"),
            ("hasAny([1], [2, 3])", "false"),
        ],
    ),
    (
        "`indexOf(a, x)`",
        "the place of an element from 1 on, or 0",
        &[("indexOf([1, 3, 5], 3)", "2"), ("indexOf(['a'], 'b')", "0")],
    ),
    ("`countEqual(a, x)`", "how often an element is there", &[("countEqual([1, 2, 1], 1)", "2")]),
    (
        "`arrayElement(a, n)`, `a[n]`",
        "an element by its place, from the end if negative",
        &[("arrayElement([1, 2, 3], 2)", "2"), ("[1, 2, 3][-1]", "3")],
    ),
    (
        "`arraySlice(a, n)`, `arraySlice(a, n, m)`",
        "m elements from a place on; a negative m is where to end before the end",
        &[
            ("arraySlice([1, 2, 3, 4, 5], 2, 3)", "[2, 3, 4]"),
            ("arraySlice([1, 2, 3], -2)", "[2, 3]"),
            ("arraySlice([1, 2, 3, 4], 1, -1)", "[1, 2, 3]"),
        ],
    ),
    (
        "`arrayPushBack(a, x)`, `arrayPushFront(a, x)`, `arrayPopBack(a)`, `arrayPopFront(a)`",
        "one element more or less",
        &[
            ("arrayPushBack(['a'], 'b')", "[a, b]"),
            ("arrayPushFront(['b'], 'a')", "[a, b]"),
            ("arrayPopBack([1, 2, 3])", "[1, 2]"),
            ("arrayPopFront([1, 2, 3])", "[2, 3]"),
        ],
    ),
    (
        "`arrayDistinct(a)`, `arrayUniq(a)`, `arrayCompact(a)`",
        "each value once; how many there are; without those that follow themselves",
        &[
            ("arrayDistinct([1, 2, 2, 3, 1])", "[1, 2, 3]"),
            ("arrayUniq([1, 2, 2])", "2"),
            ("arrayCompact([1, 1, 2, 3, 3, 3])", "[1, 2, 3]"),
        ],
    ),
    (
        "`array(x, ...)`, `arrayWithConstant(n, x)`, `arrayResize(a, n, x)`",
        "an array of values; of the same one n times; with n elements, of which those that were not there are x",
        &[
            ("array(1, 2)", "[1, 2]"),
            ("arrayWithConstant(3, 1)", "[1, 1, 1]"),
            ("arrayResize([1], 3, 7)", "[1, 7, 7]"),
            ("arrayResize([1, 2], 1, 7)", "[1]"),
        ],
    ),
    (
        "`hasSubstr(a, b)`",
        "whether the elements of b stand in a one behind the other",
        &[
            ("hasSubstr([1, 2, 3, 4], [2, 3])", "true"),
            ("hasSubstr([1, 2, 3, 4], [3, 2])", "false"),
            ("hasSubstr(['a'], [])", "true"),
        ],
    ),
    (
        "`arrayIntersect(a, b, ...)`",
        "elements that are in all",
        &[
            ("arraySort(arrayIntersect([1, 2, 3], [3, 2, 5]))", "[2, 3]"),
            ("arrayIntersect([1, 2], [1, 3], [1, 4])", "[1]"),
            ("arrayIntersect([1, 2], [1, 3], [2, 3])", "[]"),
        ],
    ),
    (
        "`arrayFlatten(a)`",
        "the elements of arrays in an array, however deep",
        &[("arrayFlatten([[[1]], [[2], [3]]])", "[1, 2, 3]"), ("arrayFlatten([1])", "[1]")],
    ),
    (
        "`arrayZip(a, b, ...)`, `tupleElement(t, n)`",
        "tuples of the elements of arrays as long as each other; a value of a tuple by its place",
        &[
            ("tupleElement(arrayZip([1, 2, 3], ['a', 'b', 'c'])[2], 2)", "b"),
            ("length(arrayZip([1, 2, 3], [5, 2, 1]))", "3"),
            ("arrayMap(t -> tupleElement(t, 1), arrayZip([1, 2], ['a', 'b']))", "[1, 2]"),
            ("tupleElement(tuple('a', 5), 2)", "5"),
        ],
    ),
    (
        "`arrayReduce(f, a)`",
        "one of `avg`, `count`, `groupUniqArray`, `max`, `min`, `sum`, `uniq` and `uniqExact` of the elements",
        &[("arrayReduce('max', [1, 2, 3])", "3"), ("arrayReduce('uniq', [1, 1])", "1")],
    ),
    (
        "`arrayEnumerateUniq(a)`, `arrayEnumerateDense(a)`",
        "how often each element was there so far; which of the different ones it is",
        &[
            ("arrayEnumerateUniq([10, 20, 10, 30])", "[1, 1, 2, 1]"),
            ("arrayEnumerateDense([10, 20, 10, 30])", "[1, 2, 1, 3]"),
        ],
    ),
    (
        "`arrayEnumerate(a)`",
        "the places of the elements",
        &[("arrayEnumerate(['a', 'b'])", "[1, 2]")],
    ),
    (
        "`arrayStringConcat(a)`, `arrayStringConcat(a, s)`",
        "elements as a text",
        &[("arrayStringConcat(['12', '34'], ',')", "12,34"), ("arrayStringConcat([1, 2])", "12")],
    ),
    (
        "`arraySort(a)`, `arraySort(x -> k, a)`, `arrayReverseSort(a)`, `arrayReverseSort(x -> k, a)`",
        "elements in order, or in that of what a lambda makes of them; nulls last",
        &[
            ("arraySort([1, 3, 3, 0])", "[0, 1, 3, 3]"),
            ("arraySort(x -> -x, [1, 2, 3])", "[3, 2, 1]"),
            ("arrayReverseSort([1, 3, 3, 0])", "[3, 3, 1, 0]"),
            ("arrayReverseSort(x -> -x, [1, 2, 3])", "[1, 2, 3]"),
        ],
    ),
    (
        "`arraySum(a)`, `arraySum(x -> y, a)`, `arrayAvg(a)`, `arrayMin(a)`, `arrayMax(a)`, `arrayProduct(a)`",
        "of the elements, or of what a lambda makes of them",
        &[
            ("arraySum([2, 3])", "5"),
            ("arraySum(x -> x * x, [2, 3])", "13"),
            ("arrayAvg([1, 2, 4, 5])", "3.0"),
            ("arrayMin([1, 2, 4])", "1"),
            ("arrayMax(x -> -x, [1, 2, 4])", "-1"),
            ("arrayProduct([1, 2, 3, 4, 5, 6])", "720"),
        ],
    ),
    (
        "`arrayCumSum(a)`, `arrayCumSumNonNegative(a)`, `arrayDifference(a)`, with a lambda as well",
        "running sums; those that are at least 0 each; what each is more than the one before",
        &[
            ("arrayCumSum([1, 1, 1, 1])", "[1, 2, 3, 4]"),
            ("arrayCumSum(x -> x * 2, [1, 2])", "[2, 6]"),
            ("arrayCumSumNonNegative([1, 1, -4, 1])", "[1, 2, 0, 1]"),
            ("arrayDifference([1, 2, 3, 4])", "[0, 1, 1, 1]"),
            ("arrayDifference(x -> x * 2, [1, 2])", "[0, 2]"),
        ],
    ),
    (
        "`arrayMap(x -> y, a)`, `arrayMap((x, y) -> z, a, b)`",
        "what a lambda makes of each element",
        &[
            ("arrayMap(x -> x + 2, [1, 2, 3])", "[3, 4, 5]"),
            ("arrayMap((x, y) -> x * y, [1, 2], [3, 4])", "[3, 8]"),
            ("arrayMap(x -> upper(x), ['a'])", "[A]"),
        ],
    ),
    (
        "`arrayFilter(x -> c, a)`",
        "elements for which a condition holds",
        &[
            ("arrayFilter(x -> x LIKE '%World%', ['Hello', 'abc World'])", "[abc World]"),
            ("arrayFilter(x -> x > 1, [1, NULL, 3])", "[3]"),
        ],
    ),
    (
        "`arrayExists(x -> c, a)`, `arrayAll(x -> c, a)`, `arrayCount(x -> c, a)`",
        "whether a condition holds for any or for all elements, and for how many",
        &[
            ("arrayExists(x -> x > 2, [1, 2, 3])", "true"),
            ("arrayAll(x -> x > 2, [1, 2, 3])", "false"),
            ("arrayCount(x -> x > 1, [1, 2, 3])", "2"),
            ("arrayCount([true, false, true])", "2"),
        ],
    ),
    (
        "`arrayFirst(x -> c, a)`, `arrayLast(x -> c, a)`, `arrayFirstIndex(x -> c, a)`, `arrayLastIndex(x -> c, a)`",
        "the first or last such element, null if there is none; its place, or 0",
        &[
            ("arrayFirst(x -> x > 1, [1, 2, 3])", "2"),
            ("arrayLast(x -> x > 1, [1, 2, 3])", "3"),
            ("arrayFirst(x -> x > 9, [1, 2])", "NULL"),
            ("arrayFirstIndex(x -> x > 1, [1, 2, 3])", "2"),
            ("arrayLastIndex(x -> x < 3, [1, 2, 3])", "2"),
        ],
    ),
    (
        "`mapFromArrays(k, v)`, `mapKeys(m)`, `mapValues(m)`, `mapContains(m, k)`",
        "a map of keys and values, and what it has",
        &[
            ("mapKeys(mapFromArrays(['a', 'b'], [1, 2]))", "[a, b]"),
            ("mapValues(mapFromArrays(['a', 'b'], [1, 2]))", "[1, 2]"),
            ("mapContains(mapFromArrays(['a'], [1]), 'b')", "false"),
        ],
    ),
    ("`tuple(a, b, ...)`", "several values as one", &[("tuple(1, 'a') = tuple(1, 'a')", "true")]),
];

/// See the head of this file.
pub(super) const JSON: &[Row] = &[
    (
        "`JSONExtractString(j, path...)`",
        "a value as text; keys are texts, places in lists count from 1 or from the end",
        &[
            ("JSONExtractString('{\"a\": \"hello\", \"b\": [-100, 200.0, 300]}', 'a')", "hello"),
            ("JSONExtractString('{\"b\": [1, {\"c\": \"x\"}]}', 'b', -1, 'c')", "x"),
            ("JSONExtractString('{\"a\": 1}', 'z')", "NULL"),
        ],
    ),
    (
        "`JSONExtractInt(j, path...)`, `JSONExtractUInt(j, path...)`, `JSONExtractFloat(j, path...)`, `JSONExtractBool(j, path...)`",
        "a value of this type, or null",
        &[
            ("JSONExtractInt('{\"a\": \"hello\", \"b\": [-100, 200.0, 300]}', 'b', 1)", "-100"),
            ("JSONExtractUInt('{\"b\": [-100, 200, 300]}', 'b', -1)", "300"),
            ("JSONExtractFloat('{\"b\": [-100, 200.5]}', 'b', 2)", "200.5"),
            ("JSONExtractBool('{\"passed\": true}', 'passed')", "true"),
        ],
    ),
    (
        "`JSONExtractRaw(j, path...)`, `JSONExtractArrayRaw(j, path...)`",
        "a value as JSON; the values of a list as JSON",
        &[
            ("JSONExtractRaw('{\"a\": \"x\", \"b\": [1, 2]}', 'b')", "[1, 2]"),
            (
                "JSONExtractArrayRaw('{\"b\": [-100, 200.0, \"hello\"]}', 'b')",
                "[-100, 200.0, \"hello\"]",
            ),
        ],
    ),
    (
        "`JSONExtractKeys(j, path...)`, `JSONLength(j, path...)`, `JSONHas(j, path...)`",
        "keys of an object; how many elements there are; whether there is a value",
        &[
            ("JSONExtractKeys('{\"a\": \"hello\", \"b\": 1}')", "[a, b]"),
            ("JSONLength('{\"b\": [-100, 200.0, 300]}', 'b')", "3"),
            ("JSONHas('{\"a\": \"hello\"}', 'a')", "true"),
            ("JSONHas('{\"b\": [1, 2, 3]}', 'b', 4)", "false"),
        ],
    ),
    (
        "`JSONExtract(j, path..., type)`",
        "a value of the type, one of `String`, `Int64`, `UInt64`, `Float64`, `Bool`, also in `Nullable(...)`",
        &[
            ("JSONExtract('{\"a\": 1.5}', 'a', 'Float64')", "1.5"),
            ("JSONExtract('{\"a\": \"x\"}', 'a', 'Nullable(String)')", "x"),
        ],
    ),
];
