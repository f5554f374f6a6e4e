"""Spark plans: rows that are known to repeat are privatized, all others are rejected at once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from offaxis.engines import spark as engine
from offaxis.engines.spark.plans import check_repeating
from offaxis.errors import InvalidInput

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

SCHEMA = "id string, vector array<double>"


def F():
    """Return the functions of Spark, by their usual name."""
    from pyspark.sql import functions

    return functions


@pytest.fixture
def people(frame):
    """The records, also as a table for SQL."""
    frame.createOrReplaceTempView("people")
    return frame.select("id", "vector", "group")


def sql(text):
    return lambda people: people.sparkSession.sql(text)


def window(people):
    from pyspark.sql import Window

    first = F().first("vector").over(Window.partitionBy("id").orderBy("group"))
    return people.withColumn("vector", first)


def stream(people):
    folder = str(Path(people.inputFiles()[0].removeprefix("file:")).parent)
    return people.sparkSession.readStream.schema(SCHEMA).parquet(folder)


def database(people):
    """Return ids of the database that Spark contains, joined to the records."""
    session = people.sparkSession
    session._jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
    reader = session.read.format("jdbc").option("url", "jdbc:derby:memory:ids;create=true")
    ids = reader.option("query", "select 'person 7' as \"id\" from sysibm.sysdummy1").load()
    return people.join(ids, "id")


def times(people):
    """Read text files with a column of times."""
    folder = people.inputFiles()[0].rpartition("/")[0]
    read = people.sparkSession.read.schema("id string, vector array<double>, t timestamp")
    return read.json(folder)


def same(column):
    """Return a Python function of a column that returns its input."""
    return F().udf(lambda value: value, "array<double>")(column)


def same_in_pandas(column):
    import pandas as pd

    def keep(values):
        return values

    # Spark reads the classes, which annotations in this file are not.
    keep.__annotations__ = {"values": pd.Series, "return": pd.Series}
    return F().pandas_udf(keep, "string")(column)


def keep_batches(batches):
    yield from batches


REJECTED = {
    # Code of users.
    "applyInPandas": (
        lambda p: p.groupBy("id").applyInPandas(lambda part: part[["id", "vector"]], SCHEMA),
        "FlatMapGroupsInPandas",
    ),
    "cogroup": (
        lambda p: (
            p.groupBy("id")
            .cogroup(p.groupBy("id"))
            .applyInPandas(lambda left, right: left[["id", "vector"]], SCHEMA)
        ),
        "FlatMapCoGroupsInPandas",
    ),
    "mapInPandas": (
        lambda p: p.select("id", "vector").mapInPandas(keep_batches, SCHEMA),
        "MapInPandas",
    ),
    "mapInArrow": (
        lambda p: p.select("id", "vector").mapInArrow(keep_batches, SCHEMA),
        "PythonMapInArrow",
    ),
    "udf": (lambda p: p.withColumn("vector", same("vector")), "PythonUDF"),
    "udf below": (lambda p: p.filter(F().size(same("vector")) > 0).sort("id"), "PythonUDF"),
    "pandas udf": (lambda p: p.withColumn("id", same_in_pandas("id")), "PythonUDF"),
    "java method": (
        lambda p: p.withColumn("id", F().expr("java_method('java.util.UUID', 'randomUUID')")),
        "CallMethodViaReflection",
    ),
    # Subqueries inside expressions.
    "in limit": (
        sql("SELECT id, vector FROM people WHERE id IN (SELECT id FROM people LIMIT 9)"),
        "GlobalLimit",
    ),
    "not in limit, nested": (
        sql(
            "SELECT id, vector FROM people WHERE group = 'a' OR id NOT IN "
            "(SELECT id FROM people WHERE id IN (SELECT id FROM people LIMIT 9))"
        ),
        "GlobalLimit",
    ),
    "scalar": (
        sql("SELECT id, vector FROM people WHERE id > (SELECT first(id) FROM people)"),
        "Aggregate",
    ),
    "scalar in a column": (
        sql(
            "SELECT id, transform(vector, x -> x * (SELECT max(1) FROM people)) vector FROM people"
        ),
        "Aggregate",
    ),
    "exists": (
        sql(
            "SELECT id, vector FROM people p WHERE EXISTS "
            "(SELECT 1 FROM people TABLESAMPLE (50 PERCENT) q WHERE q.id = p.id)"
        ),
        "Sample",
    ),
    "common table": (
        sql("WITH few AS (SELECT * FROM people LIMIT 9) SELECT id, vector FROM few"),
        "GlobalLimit",
    ),
    # Operators.
    "explode": (
        lambda p: p.select("id", "vector", F().explode(F().array(F().lit(1)))),
        "Generate",
    ),
    "collect_list": (
        lambda p: (
            p.select("id", F().explode("vector").alias("x"))
            .groupBy("id")
            .agg(F().collect_list("x").alias("vector"))
        ),
        "Aggregate",
    ),
    "first": (lambda p: p.groupBy("id").agg(F().first("vector").alias("vector")), "Aggregate"),
    "duplicates": (lambda p: p.dropDuplicates(["id"]), "Deduplicate"),
    "distinct": (sql("SELECT DISTINCT id, vector FROM people"), "Distinct"),
    "join and limit": (
        lambda p: p.join(p.select("id", "group").limit(50), "id"),
        "GlobalLimit",
    ),
    "sort and limit": (lambda p: p.sort("id").limit(10), "GlobalLimit"),
    "cached limit": (lambda p: p.limit(10).cache(), "GlobalLimit"),
    "offset": (lambda p: p.offset(10), "Offset"),
    "sample": (lambda p: p.sample(0.5), "Sample"),
    "window": (window, "Window"),
    # Expressions.
    "rand": (lambda p: p.withColumn("id", F().rand().cast("string")), "Rand"),
    "rand in a filter": (lambda p: p.filter(F().rand() < 0.5), "Rand"),
    "uuid": (lambda p: p.withColumn("id", F().expr("uuid()")), "Uuid"),
    "number": (
        lambda p: p.withColumn("id", F().monotonically_increasing_id()),
        "MonotonicallyIncreasingID",
    ),
    "shuffle": (lambda p: p.withColumn("vector", F().shuffle("vector")), "Shuffle"),
    "file name": (lambda p: p.withColumn("id", F().input_file_name()), "InputFileName"),
    "time": (lambda p: p.withColumn("id", F().current_timestamp().cast("string")), "CurrentTime"),
    # Deterministic according to Spark, but with a random initialisation vector.
    "encryption": (
        lambda p: p.withColumn("id", F().expr("base64(aes_encrypt(id, '0123456789abcdef'))")),
        "AesEncrypt",
    ),
    "sine": (
        lambda p: p.withColumn("vector", F().transform("vector", lambda x: F().sin(x))),
        "Sin",
    ),
    # These write the address of an array in memory.
    "format_string": (
        lambda p: p.withColumn("id", F().format_string("%s", "vector")),
        "FormatString",
    ),
    "to_csv": (lambda p: p.withColumn("id", F().to_csv(F().struct("vector"))), "StructsToCsv"),
    "to_json": (lambda p: p.withColumn("id", F().to_json(F().struct("id"))), "StructsToJson"),
    # The date of a time of day is that of today.
    "time of text": (
        lambda p: p.withColumn("id", F().col("id").cast("timestamp").cast("string")),
        "a time read from text",
    ),
    "now": (
        sql("SELECT concat(id, cast(cast('now' as timestamp) as string)) id, vector FROM people"),
        "a time read from text",
    ),
    "to_timestamp": (
        lambda p: p.withColumn("id", F().to_timestamp("id").cast("string")),
        "a time read from text",
    ),
    "time in json": (
        lambda p: p.withColumn("id", F().from_json("id", "t timestamp").t.cast("string")),
        "a time read from text",
    ),
    # Sources.
    "time in a file": (times, "a time read from text"),
    "stream": (stream, "Streaming"),
    "database": (database, "JDBCRelation"),
    "list": (lambda p: p.sparkSession.createDataFrame([("a", [1.0] * 6)], SCHEMA), "LogicalRDD"),
    "rdd": (lambda p: p.rdd.map(lambda r: (r.id, r.vector)).toDF(SCHEMA), "LogicalRDD"),
    "lazy checkpoint": (lambda p: p.limit(5).localCheckpoint(eager=False), "LogicalRDD"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rows_that_are_not_known_to_repeat_are_rejected(name, people, release, tmp_path):
    change, reason = REJECTED[name]
    changed = change(people)
    message = rf"computed again.*not known to repeat: .*{reason}.*write them to Parquet first"
    with pytest.raises(InvalidInput, match=message) as caught:
        engine.privatize(changed, release, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    assert "person 7" not in str(caught.value)


def other_format(name):
    """Return a change that stores the ids and vectors as another kind of file and reads them."""

    def changed(people, folder):
        path = str(folder / name)
        text = people.select("id", F().to_json("vector").alias("vector"))
        (people.select("id", "vector") if name == "orc" else text).write.format(name).save(path)
        if name == "orc":
            return people.sparkSession.read.orc(path)
        read = people.sparkSession.read.schema("id string, vector string").format(name).load(path)
        return read.withColumn("vector", F().from_json("vector", "array<double>"))

    return changed


def deep(people, _):
    for number in range(60):
        people = people.withColumn("group", F().concat("group", F().lit(str(number % 10))))
    return people


def broadcast(people, _):
    return people.join(F().broadcast(people.select("id", "group")), "id")


ACCEPTED = {
    "files": lambda p, _: p,
    "columns": lambda p, _: p.select(
        F().concat_ws("-", F().upper("id"), F().lit("x")).alias("id"),
        F().col("vector").cast("array<float>").alias("vector"),
    ),
    "functions": lambda p, _: p.withColumn(
        "vector",
        F().transform(
            F().slice(F().array_sort("vector"), 1, 6),
            lambda x: F().when(x > 1, F().log1p(x)).otherwise(F().sqrt(F().abs(x)) / 2),
        ),
    ).withColumn("id", F().sha2(F().regexp_replace("id", "person", "p"), 256)),
    "aggregated lists": lambda p, _: p.withColumn(
        "vector",
        F().expr("transform(vector, x -> x / aggregate(vector, 1D, (a, y) -> a + y * y))"),
    ),
    "missing values": lambda p, _: (
        p.dropna().na.drop(subset=["id"]).withColumn("id", F().expr("nvl(nullif(id, ''), 'x')"))
    ),
    "times": lambda p, _: p.withColumn(
        "id",
        F().expr(
            "concat(id, extract(year from to_timestamp('2026-01-02', 'yyyy-MM-dd') + interval 3 "
            "days), to_date('2026', 'yyyy') - to_date('2025', 'yyyy'))"
        ),
    ),
    "more functions": lambda p, _: p.withColumn(
        "id",
        F().expr(
            "concat(mask(id), soundex(id), regexp_count(id, 'p'), regexp_instr(id, 'e'), "
            "regexp_substr(id, '[0-9]+'), to_char(12, '99'), to_number('12', '99'), "
            "hex(to_binary('ff', 'hex')), typeof(id), getbit(5, 0), radians(pi()), e())"
        ),
    ),
    "filters": lambda p, _: p.filter("group IN ('a', 'b') AND id LIKE 'person%'").where(
        F().size("vector") == 6
    ),
    "partitions": lambda p, _: p.repartition(3).coalesce(2).repartition(2, "id").sort("id"),
    "range partitions": lambda p, _: p.repartitionByRange(2, "id").sortWithinPartitions("id"),
    "join": lambda p, _: p.join(p.select("id", "group").filter("group = 'a'"), "id"),
    "left join": lambda p, _: p.alias("l").join(p.alias("r").select("id"), "id", "left_semi"),
    "broadcast": broadcast,
    "union": lambda p, _: p.filter("group = 'a'").union(p.filter("group <> 'a'")),
    "union by name": lambda p, _: p.filter("group = 'a'").unionByName(
        p.filter("group = 'b'").select("vector", "group", "id")
    ),
    "sql": lambda p, _: p.sparkSession.sql(
        "WITH some AS (SELECT * FROM people WHERE group = 'a') SELECT /*+ REPARTITION(2) */ s.id, "
        "s.vector FROM some s JOIN people USING (id) WHERE s.id IN (SELECT id FROM people) AND "
        "EXISTS (SELECT 1 FROM people q WHERE q.id = s.id)"
    ),
    "values": lambda p, _: p.sparkSession.sql(
        "SELECT string(id) id, array(1D, 2D, 3D, 4D, 5D, 6D) vector FROM range(9)"
    ).union(p.sparkSession.sql("VALUES ('a', array(1D, 2D, 3D, 4D, 5D, 6D))")),
    "orc": other_format("orc"),
    "json": other_format("json"),
    "csv": other_format("csv"),
    # Read from what was written, never computed again.
    "checkpoint": lambda p, _: p.limit(10).localCheckpoint(),
    "long": deep,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_plans_that_repeat_are_accepted(name, people, tmp_path):
    changed = ACCEPTED[name](people, tmp_path)
    check_repeating(changed)
    assert changed.select("id", "vector").first() is not None


def test_a_list_is_privatized_after_it_was_written(spark, release, tmp_path):
    frame = spark.createDataFrame(
        [(number, [1.0] * 6) for number in range(9)], "id int, vector array<double>"
    )
    with pytest.raises(InvalidInput, match="write them to Parquet first"):
        engine.privatize(frame, release, str(tmp_path / "out"))
    frame.write.parquet(str(tmp_path / "people"))
    written = spark.read.parquet(str(tmp_path / "people"))
    facts = engine.privatize(written, release, str(tmp_path / "out"))
    assert facts["reports"] == 9


def test_a_combination_of_accepted_plans_is_privatized(people, release, tmp_path):
    some = people.filter("group <> 'c'").join(people.select("id").sort("id"), "id")
    changed = some.withColumn("vector", F().transform("vector", lambda x: x * 2)).repartition(3)
    facts = engine.privatize(changed, release, str(tmp_path / "out"))
    assert facts["reports"] == 2000
    assert json.loads((tmp_path / "out" / "_offaxis.json").read_text()) == facts
    expected = {row.id for row in people.filter("group <> 'c'").collect()}
    assert set(pq.read_table(tmp_path / "out")["id"].to_pylist()) == expected
