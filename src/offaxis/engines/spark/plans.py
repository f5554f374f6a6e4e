"""Which Spark plans repeat: computed again, they give every record the same vector.

Spark computes rows again when a task fails, is slow, or loses its output. A record whose vector
then differs would be released twice. So a plan is accepted only if all its parts are known to
repeat: its sources, its operators and its expressions, those of subqueries included. Everything
else is rejected, also what happens to repeat: code of users, aggregates (the order of a sum changes
its rounding), limits, generators, streams, sources other than files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from offaxis.errors import InvalidInput

_OPERATORS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_SOURCES: Final = "org.apache.spark.sql.execution.datasources."

_REPEATING_OPERATORS: Final = frozenset(
    f"{_OPERATORS}{name}"
    for names in (
        # Rows in the plan itself.
        ("LocalRelation", "OneRowRelation", "Range"),
        # One row or none per row; the same rows in another order.
        ("Project", "Filter", "Sort"),
        ("Repartition", "RepartitionByExpression", "RebalancePartitions"),
        # Which rows meet in a join depends on their values alone.
        ("Join", "Union"),
        # Names and hints.
        ("SubqueryAlias", "View", "ResolvedHint", "WithCTE", "CTERelationDef", "CTERelationRef"),
    )
    for name in names
)
"""Operators that map repeating inputs to the same rows, in whatever order."""

_LEAVES: Final = frozenset({"AttributeReference", "Literal", "NamedLambdaVariable"})
_SUBQUERIES: Final = frozenset({"Exists", "ListQuery", "ScalarSubquery"})

_CONDITIONS: Final = """
Alias OuterReference SortOrder Cast If CaseWhen Coalesce NaNvl NullIf Nvl Nvl2 KnownNotNull And Or
Not EqualTo EqualNullSafe EqualNull LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In
InSubquery IsNull IsNotNull IsNaN AtLeastNNonNulls TypedNullLiteral TypeOf Like ILike RLike LikeAll
LikeAny NotLikeAll NotLikeAny
"""

# Java rounds these alike on every machine. Sine and others are missing: a Java virtual machine may
# round them as its processor does.
_ARITHMETIC: Final = """
Pi EulerNumber ToRadians ToDegrees Abs Add Subtract Multiply Divide IntegralDivide Remainder Pmod
UnaryMinus UnaryPositive TryAdd TrySubtract TryMultiply TryDivide Sqrt Exp Expm1 Log Log2 Log10
Log1p Logarithm Pow Ceil Floor RoundCeil RoundFloor Round BRound Rint Signum Greatest Least
Factorial WidthBucket CheckOverflow BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseCount
BitwiseGet ShiftLeft ShiftRight ShiftRightUnsigned
"""

# Not format_string, to_json and to_csv: of bytes and lists they may write the address in memory.
_TEXT: Final = """
Ascii Base64 UnBase64 Bin Chr Concat ConcatWs Contains StartsWith EndsWith Conv Decode Encode Elt
FindInSet FormatNumber Mask SoundEx ToBinary ToCharacter ToNumber TryToNumber Hex Unhex InitCap Left
Right Length BitLength OctetLength Levenshtein Lower Upper Overlay RegExpCount RegExpExtract
RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr Reverse StringDecode StringInstr
StringLocate StringLPad StringRPad StringRepeat StringReplace StringSpace StringSplit StringSplitSQL
SplitPart StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight Substring
SubstringIndex Crc32 Md5 Sha1 Sha2 Murmur3Hash XxHash64
"""

_COLLECTIONS: Final = """
CreateArray CreateMap CreateNamedStruct UpdateFields WithField GetStructField GetArrayItem
GetArrayStructFields GetMapValue ElementAt TryElementAt Get Size ArraySize Slice Flatten Sequence
SortArray ArrayAppend ArrayPrepend ArrayInsert ArrayCompact ArrayContains ArrayDistinct ArrayExcept
ArrayIntersect ArrayUnion ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayRemove ArrayRepeat
ArraysOverlap ArraysZip LambdaFunction ArrayAggregate ArrayExists ArrayFilter ArrayForAll ArraySort
ArrayTransform ZipWith MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries
MapKeys MapValues MapZipWith TransformKeys TransformValues StringToMap JsonToStructs GetJsonObject
CsvToStructs
"""

# Not the current date or time.
_DATES: Final = """
AddMonths DateAdd DateAddInterval DateAddYMInterval DateSub DatetimeSub DateDiff Extract
SubtractDates SubtractTimestamps TimeAdd TimestampAddYMInterval DateFormatClass DateFromUnixDate
DayOfMonth DayOfWeek DayOfYear FromUTCTimestamp FromUnixTime GetTimestamp Hour LastDay MakeDate
MakeTimestamp MicrosToTimestamp MillisToTimestamp Minute Month MonthsBetween NextDay ParseToDate
ParseToTimestamp Quarter Second SecondsToTimestamp ToUTCTimestamp ToUnixTimestamp TruncDate
TruncTimestamp UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear Year
"""

_REPEATING_EXPRESSIONS: Final = (
    _LEAVES
    | _SUBQUERIES
    | frozenset((_CONDITIONS + _ARITHMETIC + _TEXT + _COLLECTIONS + _DATES).split())
)
"""Built-in expressions whose value is a function of their inputs."""

_FROM_TEXT: Final = frozenset(
    {"Cast", "JsonToStructs", "CsvToStructs", "ParseToDate", "ParseToTimestamp"}
)
"""Expressions that read texts; one that has a time and no date would get the date of today."""

_TEXT_FORMATS: Final = frozenset({f"{_SOURCES}json.JsonFileFormat", f"{_SOURCES}csv.CSVFileFormat"})

_FILE_FORMATS: Final = frozenset(
    {
        f"{_SOURCES}parquet.ParquetFileFormat",
        f"{_SOURCES}orc.OrcFileFormat",
        f"{_SOURCES}json.JsonFileFormat",
        f"{_SOURCES}csv.CSVFileFormat",
        f"{_SOURCES}text.TextFileFormat",
        f"{_SOURCES}binaryfile.BinaryFileFormat",
        "org.apache.spark.sql.avro.AvroFileFormat",
    }
)


def check_repeating(frame: Any) -> None:
    """Raise for a DataFrame that is not known to give the same records when computed again.

    The analysed plan is checked, so a cached frame is judged by how it would be computed again. A
    frame of ``checkpoint`` or ``localCheckpoint`` is read from what was written, and is accepted.
    """
    plan = frame._jdf.queryExecution().analyzed()
    reasons = set(_unknown_parts(plan))
    if not (reasons or plan.deterministic()):
        reasons = {"random columns"}
    if reasons:
        raise InvalidInput(
            f"these rows may change when they are computed again, and a record would be released "
            f"twice (not known to repeat: {', '.join(sorted(reasons))}); write them to Parquet "
            f"first and privatize the files"
        )


def _unknown_parts(plan: Any) -> Iterator[str]:
    """Yield the names of operators, sources and expressions that are not known to repeat."""
    # No recursion: a plan made in a loop is deep.
    plans: list[Any] = [plan]
    expressions: list[Any] = []
    while plans or expressions:
        if plans:
            node = plans.pop()
            yield from _unknown_operator(node)
            plans += _items(node.children())
            expressions += _items(node.expressions())
            continue
        node = expressions.pop()
        full = _class_name(node)
        name = full.removeprefix(_EXPRESSIONS)
        if name == full or name not in _REPEATING_EXPRESSIONS:
            yield _short(full)
        elif name in _FROM_TEXT and _reads_times(node):
            yield "a time read from text; use to_timestamp with a format"
        elif name not in _LEAVES:
            expressions += _items(node.children())
            if name in _SUBQUERIES:
                plans.append(node.plan())


def _unknown_operator(node: Any) -> Iterator[str]:
    """Yield the name of an operator or a source that is not known to repeat."""
    name = _class_name(node)
    if name == f"{_SOURCES}LogicalRelation":
        relation = node.relation()
        source = _class_name(relation)
        if source == f"{_SOURCES}HadoopFsRelation":
            source = _class_name(relation.fileFormat())
        if source not in _FILE_FORMATS or node.isStreaming():
            yield _short(source)
        elif source in _TEXT_FORMATS and _has_time(relation.dataSchema()):
            yield "a time read from text; read it as a string and use to_timestamp with a format"
    elif name == "org.apache.spark.sql.execution.LogicalRDD":
        # Rows of a local list and of a user's function look alike here: both come from Python.
        if node.isStreaming() or not node.rdd().isCheckpointed():
            yield "LogicalRDD, rows that a program made"
    elif name not in _REPEATING_OPERATORS:
        yield _short(name)


def _reads_times(node: Any) -> bool:
    """Whether an expression makes times of text without a format: of "12:34", or of "now"."""
    children = _items(node.children())
    of_text = "string" in children[0].dataType().catalogString()
    makes = node.dataType().catalogString()
    return of_text and len(children) == 1 and ("timestamp" in makes or "date" in makes)


def _has_time(kind: Any) -> bool:
    return "timestamp" in kind.catalogString()


def _class_name(value: Any) -> str:
    """Return the full name of the Java class, so that a user's class cannot pass for Spark's."""
    return str(value.getClass().getName())


def _short(name: str) -> str:
    return name.rpartition(".")[2].rstrip("$")


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
