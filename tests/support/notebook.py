"""A notebook of mixed SQL and DataFrame code, as cells; a cell leaves what it shows in `result`.

A cell needs `spark`, `DeltaTable`, `F`, and the names `home`, a directory, and `db`, the current
database.  What `PRELUDE` defines comes before each cell.
"""

from __future__ import annotations

PRELUDE = """
import json
import re
from tests.support.canonical import json_rows

def rows(frame, sort=True):
    return [json.loads(row) for row in json_rows(frame, sort=sort)]

def sql(text, sort=True, **names):
    return rows(spark.sql(text.format(home=home, db=db), **names), sort)

def history(name):
    told = spark.sql(f"DESCRIBE HISTORY {name}")
    return rows(told.select("version", "operation", "operationParameters"), sort=False)

def condition(action):
    try:
        action()
    except Exception as error:
        get = getattr(error, "getCondition", None)
        # Errors of tasks come without their condition from there, but for the text.
        in_text = re.search(r"\\[([A-Z_.]+)\\]", str(error))
        return getattr(error, "condition", None) or (get and get()) or (in_text and in_text[1])
"""

CELLS: dict[str, str] = {
    "a table for events": '''
sql("""CREATE TABLE events (
  id BIGINT NOT NULL COMMENT 'the key', name STRING, amount DECIMAL(9, 2), at TIMESTAMP,
  day DATE GENERATED ALWAYS AS (CAST(at AS DATE))
) USING delta PARTITIONED BY (day) COMMENT 'what happened'
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')""")
result = sql("DESCRIBE events", sort=False)
''',
    "rows by SQL": '''
sql("""INSERT INTO events (id, name, amount, at) VALUES
  (1, 'ada', 10.5, TIMESTAMP'2024-01-01 10:00:00'),
  (2, 'bob', 20, TIMESTAMP'2024-01-01 12:00:00'),
  (3, 'céc', NULL, TIMESTAMP'2024-01-02 09:30:00')""")
result = sql("SELECT * FROM events")
''',
    "rows by a DataFrame": """
more = spark.createDataFrame([(4, "dan"), (5, "eve")], "id BIGINT, name STRING")
more = more.selectExpr("id", "name", "CAST(7.25 AS DECIMAL(9, 2)) AS amount",
                       "TIMESTAMP'2024-01-03 00:00:00' AS at")
more.write.format("delta").mode("append").saveAsTable("events")
result = [sql("SELECT id, day FROM events"), spark.table("events").count()]
""",
    "rows by name": """
sql("INSERT INTO events BY NAME SELECT TIMESTAMP'2024-01-02' AS at, 6L AS id, 'fay' AS name")
result = sql("SELECT id, name, amount, day FROM events WHERE id = 6")
""",
    "a join, a subquery, a CTE": '''
result = [
    sql("SELECT a.name, b.id FROM events a JOIN events b ON a.day = b.day AND a.id < b.id"),
    sql("SELECT name FROM events WHERE amount = (SELECT max(amount) FROM events)"),
    sql("""WITH days AS (SELECT day, count(*) AS n FROM events GROUP BY day)
           SELECT * FROM days WHERE n > 1"""),
]
''',
    "a view": """
sql("CREATE OR REPLACE VIEW busy AS SELECT day, count(*) AS n FROM events GROUP BY day")
sql("CREATE OR REPLACE TEMP VIEW last_day AS SELECT * FROM events WHERE day = DATE'2024-01-03'")
result = [sql("SELECT * FROM busy"), sql("SELECT id FROM last_day")]
""",
    "UPDATE": """
result = [
    sql("UPDATE events SET amount = coalesce(amount, 0) + 1 WHERE id < 4"),
    sql("SELECT id, amount FROM events"),
]
""",
    "DELETE": """
result = [sql("DELETE FROM events WHERE name = 'bob'"), sql("SELECT id FROM events")]
""",
    "MERGE": '''
sql("""CREATE OR REPLACE TEMP VIEW news AS SELECT * FROM VALUES
  (1L, 'ADA', 1.0BD, TIMESTAMP'2024-01-01 10:00:00'),
  (9L, 'ida', 2.0BD, TIMESTAMP'2024-01-09 01:00:00') AS v(id, name, amount, at)""")
result = [
    sql("""MERGE INTO events t USING news s ON t.id = s.id
      WHEN MATCHED THEN UPDATE SET name = s.name, amount = s.amount
      WHEN NOT MATCHED THEN INSERT (id, name, amount, at) VALUES (s.id, s.name, s.amount, s.at)
      WHEN NOT MATCHED BY SOURCE AND t.id = 6 THEN DELETE"""),
    sql("SELECT id, name, amount, day FROM events"),
]
''',
    "MERGE by the builder": """
table = DeltaTable.forName(spark, "events")
done = (table.alias("t").merge(spark.table("news").alias("s"), "t.id = s.id")
    .whenMatchedUpdate(condition="s.id = 9", set={"amount": "t.amount + s.amount"}).execute())
result = [sql("SELECT id, amount FROM events WHERE id = 9"), table.toDF().count()]
""",
    "columns come": """
sql("ALTER TABLE events ADD COLUMNS (kind STRING COMMENT 'what kind' AFTER name)")
sql("ALTER TABLE events SET TBLPROPERTIES (owner_team = 'notebooks')")
sql("COMMENT ON TABLE events IS 'what happened, and when'")
result = [sql("DESCRIBE events", sort=False), sql("SHOW TBLPROPERTIES events (owner_team)")]
""",
    "columns are renamed and dropped": """
sql("ALTER TABLE events RENAME COLUMN name TO who")
sql("ALTER TABLE events DROP COLUMN kind")
result = [sql("SHOW COLUMNS IN events", sort=False), sql("SELECT who FROM events")]
""",
    "a constraint": """
sql("ALTER TABLE events ADD CONSTRAINT positive CHECK (id > 0)")
bad = "INSERT INTO events (id, who) VALUES (-1, 'nobody')"
result = [condition(lambda: sql(bad)), sql("SELECT count(*) AS n FROM events")]
""",
    "what is refused": """
result = [
    condition(lambda: sql("SELECT * FROM nowhere")),
    condition(lambda: sql("SELECT nothing FROM events")),
    condition(lambda: sql("INSERT INTO events (id) VALUES (NULL)")),
    condition(lambda: sql("ALTER TABLE events DROP COLUMN day")),
    condition(lambda: sql("SELECT * FROM events VERSION AS OF 999")),
    condition(lambda: sql("DESCRIBE HISTORY nowhere")),
    condition(lambda: spark.sql("OPTIMISE events")),
]
""",
    "older versions": """
result = [
    sql("SELECT count(*) AS n FROM events VERSION AS OF 1"),
    sql("SELECT a.id FROM events a JOIN events VERSION AS OF 1 b ON a.id = b.id"),
    spark.read.format("delta").option("versionAsOf", 2).table("events").count(),
]
""",
    "what changed": '''
result = [
    sql("""SELECT id, _change_type, _commit_version FROM table_changes('events', 4, 6)"""),
    rows(spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
         .option("endingVersion", 3).table("events").groupBy("_change_type").count()),
]
''',
    "OPTIMIZE": """
for number in (21, 22):
    sql(f"INSERT INTO events (id, who, at) VALUES ({number}, 'x', TIMESTAMP'2024-01-01 20:00:00')")
day = "WHERE day = DATE'2024-01-01'"
done = sql("OPTIMIZE events " + day)[0]["metrics"]
again = sql("OPTIMIZE events " + day)[0]["metrics"]
result = [done["numFilesAdded"], done["numFilesRemoved"] > 1, again["numFilesAdded"],
          again["numFilesRemoved"], sql("SELECT count(*) AS n FROM events")]
""",
    "RESTORE": """
before = spark.table("events").count()
version = sql("DESCRIBE HISTORY events LIMIT 1")[0]["version"]
sql("DELETE FROM events")
empty = spark.table("events").count()
sql("RESTORE TABLE events TO VERSION AS OF " + str(version))
result = [before, empty, spark.table("events").count()]
""",
    "the history": """
result = [{"version": row["version"], "operation": row["operation"]} for row in history("events")]
""",
    "the detail": """
[row] = sql("DESCRIBE DETAIL events")
wanted = ("format", "description", "partitionColumns", "minReaderVersion", "minWriterVersion",
          "tableFeatures")
result = {key: row[key] for key in wanted}
""",
    "a table by its path": """
path = home + "/people ä"
frame = spark.range(10).selectExpr("id", "id % 3 AS part", "concat('p', id) AS who")
frame.write.format("delta").partitionBy("part").save(path)
spark.range(3).selectExpr("id + 100 AS id", "9L AS part", "'x' AS who", "true AS extra") \\
    .write.format("delta").mode("append").option("mergeSchema", "true").save(path)
result = [sql("SELECT * FROM delta.`{home}/people ä`"),
          rows(spark.read.format("delta").load(path + "/").where("part = 9")),
          sql("SHOW PARTITIONS delta.`{home}/people ä`")]
""",
    "overwriting some rows": """
path = home + "/people ä"
spark.sql("SELECT 777L AS id, 9L AS part, 'new' AS who, false AS extra").write.format("delta") \\
    .mode("overwrite").option("replaceWhere", "part = 9").save(path)
people = "delta.`{home}/people ä`"
sql(f"INSERT OVERWRITE {people} SELECT * FROM {people} WHERE id < 5 OR id = 777")
result = sql("SELECT id, part, who FROM delta.`{home}/people ä`")
""",
    "a table from a query": """
counts = "SELECT part, count(*) AS n FROM delta.`{home}/people ä` GROUP BY part"
sql(f"CREATE OR REPLACE TABLE totals USING delta AS {counts}")
spark.table("totals").withColumn("n", F.col("n") * 2).writeTo("totals").overwrite(F.lit(True))
result = [sql("SELECT * FROM totals"), sql("DESCRIBE totals", sort=False)]
""",
    "a table by the builder": """
made = (DeltaTable.createIfNotExists(spark).tableName("built").addColumn("a", "INT", comment="x")
    .addColumn("b", "INT", generatedAlwaysAs="a + 1").property("mine", "yes").execute())
sql("INSERT INTO built (a) VALUES (1), (2)")
result = [rows(made.toDF()), sql("SHOW TBLPROPERTIES built (mine)")]
""",
    "a clone": """
sql("CREATE TABLE copied SHALLOW CLONE built")
sql("DELETE FROM copied WHERE a = 1")
result = [sql("SELECT * FROM copied"), sql("SELECT * FROM built")]
""",
    "a table like another": """
sql("CREATE TABLE alike LIKE built")
result = [sql("SELECT count(*) AS n FROM alike"), sql("DESCRIBE alike", sort=False)]
""",
    "a stream": """
path = home + "/stream"
query = (spark.readStream.table("built").selectExpr("a", "a + b AS s").writeStream.format("delta")
    .option("checkpointLocation", home + "/checkpoint").trigger(availableNow=True).start(path))
query.awaitTermination()
sql("INSERT INTO built (a) VALUES (50)")
query = (spark.readStream.table("built").selectExpr("a", "a + b AS s").writeStream.format("delta")
    .option("checkpointLocation", home + "/checkpoint").trigger(availableNow=True).start(path))
query.awaitTermination()
result = rows(spark.read.format("delta").load(path))
""",
    "VACUUM": """
# There a dry run lists directories of change files too, which a real one does not delete.
names = spark.sql("VACUUM events RETAIN 168 HOURS DRY RUN").collect()
result = [[row[0] for row in names if row[0].endswith(".parquet")],
          condition(lambda: sql("VACUUM events RETAIN 0 HOURS"))]
""",
    "a cached table": """
sql("CACHE TABLE built")
first = spark.table("built").count()
sql("INSERT INTO built (a) VALUES (51)")
result = [first, spark.table("built").count()]
sql("UNCACHE TABLE built")
""",
    "TRUNCATE and DROP": """
sql("TRUNCATE TABLE built")
result = [spark.table("built").count()]
for name in ("built", "copied", "alike", "totals", "events"):
    sql("DROP TABLE " + name)
sql("DROP VIEW busy")
result += [row["tableName"] for row in sql("SHOW TABLES") if not row["isTemporary"]]
""",
}
