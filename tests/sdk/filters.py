"""Asks filters of DuckDB, over rows in Parquet: an implementation of the filter language of its own.

    filters.py NOW_MICROS FILE... < filters

Each FILE has the columns `id` and `properties`, a JSON object. Standard input has one tree of filters
a line. Prints one line a tree: a list for each FILE of the ids that match, sorted.

What a leaf says of a row is P (the property is there) and C (the condition; NULL where it cannot be
decided). An operator holds if P and C; a negated one if not P, or if C is false.
"""

import json
import math
import re
import sys

import duckdb

now, files = sys.argv[1], sys.argv[2:]
BLANKS = " \t\n\f\r"
NUMBER = r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
INSTANT = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?)?)?"
VERSION = r"\s*[vV]?(\d+)(\.(\d+))?(\.(\d+))?(-([0-9A-Za-z.-]+))?(\+[0-9A-Za-z.-]+)?\s*"
UNITS = {"h": "HOUR", "d": "DAY", "w": "WEEK", "m": "MONTH", "y": "YEAR"}
NEGATED = {
    "is_not": "exact", "not_icontains": "icontains", "not_icontains_multi": "icontains_multi",
    "not_starts_with": "starts_with", "not_ends_with": "ends_with", "not_regex": "regex",
    "not_between": "between",
}
RELATIONS = {
    "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "min": ">=", "max": "<=", "eq": "=",
    "neq": "<>", "exact": "=", "after": ">", "before": "<",
}


def quote(text):
    return "'" + text.replace("'", "''") + "'"


def text_of(value):
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def ascii_lower(text):
    return "".join(c.lower() if c.isascii() else c for c in text)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number_of(value):
    if is_number(value):
        return float(value)
    # A number may have blanks around it.
    text = value.strip(BLANKS) if isinstance(value, str) else ""
    number = float(text) if re.fullmatch(NUMBER, text) else math.inf
    return number if math.isfinite(number) else None


def is_boolean(value):
    if isinstance(value, list):
        return all(is_boolean(item) for item in value)
    return isinstance(value, bool) or isinstance(value, str) and value.lower() in ("true", "false")


def is_true(value):
    if isinstance(value, list):
        return all(is_true(item) for item in value)
    return value is True or isinstance(value, str) and value.lower() == "true"


class Property:
    """Expressions about the property `key` of a row."""

    def __init__(self, key):
        pointer = quote("/" + key.replace("~", "~0").replace("/", "~1"))
        self.exists = f"json_exists(properties, {pointer})"
        self.kind = f"json_type(properties, {pointer})"
        raw = f"json_extract(properties, {pointer})"
        string = f"json_extract_string(properties, {pointer})"
        is_string = f"{self.kind} = 'VARCHAR'"
        self.text = f"(CASE WHEN {is_string} THEN {string} ELSE CAST({raw} AS VARCHAR) END)"
        # ASCII letters only, and no other.
        upper, lower = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
        self.ascii = f"translate({self.text}, '{upper}', '{lower}')"
        of_kind = f"{self.kind} IN ('UBIGINT', 'BIGINT', 'DOUBLE')"

        def number(text):
            is_numeric = f"{is_string} AND regexp_full_match({text}, {quote(NUMBER)})"
            # What is beyond doubles is none.
            parsed = f"TRY_CAST({text} AS DOUBLE)"
            return (
                f"(CASE WHEN {of_kind} THEN CAST({raw} AS DOUBLE) "
                f"WHEN {is_numeric} AND isfinite({parsed}) THEN {parsed} END)"
            )

        self.number = number(f"trim({string}, {quote(BLANKS)})")
        # Seconds since 1970 have no blanks around them.
        seconds = number(string)
        untrue = f"list_filter(CAST({raw} AS JSON[]), lambda x: coalesce(lower(json_extract_string(x, '$')), '') <> 'true')"
        self.truth = (
            f"(CASE WHEN {self.kind} IN ('VARCHAR', 'BOOLEAN') THEN lower({string}) = 'true' "
            f"WHEN {self.kind} = 'ARRAY' THEN len({untrue}) = 0 ELSE false END)"
        )
        is_instant = f"{is_string} AND regexp_full_match({string}, {quote(INSTANT)})"
        self.time = (
            f"(CASE WHEN {seconds} IS NOT NULL "
            f"THEN make_timestamptz(CAST(round({seconds} * 1000000) AS BIGINT)) "
            f"WHEN {is_instant} THEN TRY_CAST({string} AS TIMESTAMPTZ) END)"
        )
        part = lambda group: f"regexp_extract({self.text}, {quote('^' + VERSION + '$')}, {group})"
        padded = lambda group: f"lpad({part(group)}, 20, '0')"
        is_version = f"regexp_full_match({self.text}, {quote(VERSION)})"
        # Numbers come before texts; a release comes after all that come before it.
        pre = (
            f"list_transform(string_split({part(7)}, '.'), lambda x: "
            f"CASE WHEN regexp_full_match(x, '\\d+') THEN '0' || lpad(x, 20, '0') ELSE '1' || x END)"
        )
        core = f"[{padded(1)}, {padded(3)}, {padded(5)}]"
        self.version = (
            f"(CASE WHEN NOT {is_version} THEN NULL WHEN {part(7)} = '' THEN {core} || ['1'] "
            f"ELSE {core} || ['0'] || {pre} END)"
        )


def version_of(text):
    """A version as a sorted list of texts, and how many numbers it has; None if it is none."""
    found = re.fullmatch(VERSION, text)
    if not found:
        return None
    given = [found[group] for group in (1, 3, 5)]
    core = [int(number or 0) for number in given]
    pre = found[7].split(".") if found[7] else []
    return core, pre, sum(number is not None for number in given)


def version_list(core, pre=()):
    parts = [str(number).rjust(20, "0") for number in core]
    parts.append("0" if pre else "1")
    parts += ["0" + x.rjust(20, "0") if x.isdigit() else "1" + x for x in pre]
    return "[" + ", ".join(map(quote, parts)) + "]"


def next_caret(core, given):
    if core[0] > 0 or given == 1:
        return [core[0] + 1, 0, 0]
    if core[1] > 0 or given == 2:
        return [0, core[1] + 1, 0]
    return [0, 0, core[2] + 1]


def version_range(operator, text):
    """(lowest core, its pre-release, first core beyond or None), or None."""
    if operator == "semver_wildcard" and "*" in text:
        parts = text.strip().removeprefix("v").removeprefix("V").split(".")
        fixed = [part for part in parts if part != "*"]
        if len(parts) > 3 or parts[len(fixed):] != ["*"] * (len(parts) - len(fixed)):
            return None
        if not all(part.isdigit() for part in fixed):
            return None
        low = ([int(part) for part in fixed] + [0, 0, 0])[:3]
        beyond = {0: None, 1: [low[0] + 1, 0, 0], 2: [low[0], low[1] + 1, 0]}
        return low, [], beyond[len(fixed)]
    found = version_of(text)
    if not found:
        return None
    core, pre, given = found
    if operator == "semver_tilde":
        return core, pre, [core[0], core[1] + 1, 0]
    return core, pre, next_caret(core, 3 if operator == "semver_caret" else given)


def moment(value):
    """A point in time; NULL if the text names none."""
    if not isinstance(value, str):
        return "NULL"
    span = re.fullmatch(r"-?(\d+)([hdwmy])", value)
    if span and int(span[1]) < 10000:
        return f"(make_timestamptz({now}) - INTERVAL {int(span[1])} {UNITS[span[2]]})"
    if re.fullmatch(INSTANT, value):
        return f"TRY_CAST({quote(value)} AS TIMESTAMPTZ)"
    return "NULL"


def any_of(conditions):
    return "(" + " OR ".join(conditions) + ")" if conditions else "false"


def condition(p, operator, value):
    """C of an operator that is not negated."""
    if operator == "exact":
        if is_boolean(value):
            return f"{p.truth} = {is_true(value)}"
        texts = value if isinstance(value, list) else [value]
        return any_of([f"lower({p.text}) = {quote(text_of(text).lower())}" for text in texts])
    if operator in ("icontains", "icontains_multi"):
        parts = value if isinstance(value, list) and operator != "icontains" else [value]
        return any_of([f"contains({p.ascii}, {quote(ascii_lower(text_of(part)))})" for part in parts])
    if operator in ("starts_with", "ends_with"):
        return f"{operator}({p.ascii}, {quote(ascii_lower(text_of(value)))})"
    if operator == "regex":
        return f"regexp_matches({p.text}, {quote(text_of(value))})"
    if operator in ("gt", "gte", "lt", "lte", "min", "max"):
        bound = number_of(value)
        return "NULL" if bound is None else f"{p.number} {RELATIONS[operator]} {bound!r}::DOUBLE"
    if operator == "between":
        bounds = [number_of(item) for item in value] if isinstance(value, list) else []
        if len(bounds) != 2 or None in bounds or bounds[0] > bounds[1]:
            return "NULL"
        return f"{p.number} BETWEEN {bounds[0]!r}::DOUBLE AND {bounds[1]!r}::DOUBLE"
    if operator.startswith("is_date_"):
        return f"{p.time} {RELATIONS[operator.removeprefix('is_date_')]} {moment(value)}"
    if operator in ("semver_tilde", "semver_caret", "semver_wildcard"):
        bounds = version_range(operator, text_of(value))
        if not bounds:
            return "NULL"
        low, pre, beyond = bounds
        core = [str(number).rjust(20, "0") for number in low]
        is_same = f"({p.version})[1:3] = [{', '.join(map(quote, core))}]"
        # A pre-release is in the range only of one of the same version.
        of_pre = is_same if pre else "false"
        above = f"{p.version} >= {version_list(low, pre)}"
        below = "true"
        if beyond:
            end = [quote(str(number).rjust(20, "0")) for number in beyond]
            below = f"({p.version})[1:3] < [{', '.join(end)}]"
        return (
            f"(CASE WHEN ({p.version})[4] = '0' THEN {of_pre} AND {above} "
            f"WHEN {p.version} IS NOT NULL THEN {above} AND {below} END)"
        )
    if operator.startswith("semver_"):
        bound = version_of(text_of(value))
        if not bound:
            return "NULL"
        relation = RELATIONS[operator.removeprefix("semver_")]
        return f"{p.version} {relation} {version_list(bound[0], bound[1])}"
    raise ValueError(operator)


def leaf(filter):
    p = Property(filter["key"])
    operator, value = filter.get("operator") or "exact", filter.get("value")
    operator = {"in": "exact", "not_in": "is_not"}.get(operator, operator)
    if operator == "is_set":
        sql = p.exists
    elif operator == "is_not_set":
        sql = f"NOT {p.exists}"
    elif operator in NEGATED:
        held = condition(p, NEGATED[operator], value)
        sql = f"(NOT {p.exists} OR coalesce(NOT ({held}), false))"
    else:
        sql = f"({p.exists} AND coalesce({condition(p, operator, value)}, false))"
    return f"NOT ({sql})" if filter.get("negation") is True else sql


def where(tree):
    if isinstance(tree, list):
        return joined("AND", tree)
    if "values" in tree:
        return joined(tree.get("type", "AND"), tree["values"])
    if "key" in tree:
        return leaf(tree)
    # The oldest form: an object of key or key__operator to value.
    leaves = []
    for name, value in tree.items():
        key, _, operator = name.partition("__")
        leaves.append({"key": key, "operator": operator or "exact", "value": value})
    return joined("AND", leaves)


def joined(word, trees):
    # A group of nothing asks for nothing, whatever joins it.
    return "(" + f" {word} ".join(where(tree) for tree in trees) + ")" if trees else "true"


duckdb.execute("SET TimeZone = 'UTC'")
for number, file in enumerate(files):
    duckdb.execute(f"CREATE TABLE rows{number} AS SELECT id, properties FROM read_parquet(?)", [file])
for line in sys.stdin:
    sql = where(json.loads(line))
    found = []
    for number in range(len(files)):
        rows = duckdb.execute(f"SELECT id FROM rows{number} WHERE {sql} ORDER BY id").fetchall()
        found.append([id for (id,) in rows])
    print(json.dumps(found))
