-- Each kind of statement of docs/guide/sql.md; {home} is a directory, ;; ends a statement.

CREATE TABLE t (id INT, n INT) USING delta LOCATION '{home}/t 100%'
TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true',
               'delta.enableTypeWidening' = 'true');;
INSERT INTO t VALUES (1, 10), (2, 20), (3, 30);;
INSERT OVERWRITE t SELECT id, n + 1 FROM t;;
INSERT INTO t REPLACE WHERE id = 3 SELECT 3, 99;;
INSERT INTO t (id) VALUES (7);;
UPDATE t SET n = 0 WHERE id = 1;;
DELETE FROM t WHERE id = 2;;
MERGE INTO t
  USING (SELECT * FROM VALUES (3, 33), (4, 44) AS v(id, n)) s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;;
SELECT * FROM t ORDER BY id;;
SELECT count(*) AS n FROM t VERSION AS OF 1;;
SELECT * FROM t@v1 ORDER BY id;;
SELECT id, _change_type, _commit_version FROM table_changes('t', 4, 5) ORDER BY id, _change_type;;
SELECT id, n FROM delta.`{home}/t 100%` ORDER BY id;;
CREATE TABLE delta.`{home}/p ä` (id INT, p INT) USING delta PARTITIONED BY (p);;
INSERT INTO delta.`{home}/p ä` VALUES (1, 1), (2, 2);;
SELECT id FROM table_changes_by_path('{home}/t 100%', 6);;
SHOW PARTITIONS delta.`{home}/p ä`;;
CREATE TABLE u LIKE t;;
CREATE TABLE c SHALLOW CLONE t VERSION AS OF 1;;
SELECT * FROM c ORDER BY id;;
ALTER TABLE t ADD COLUMNS (more STRING);;
ALTER TABLE t RENAME COLUMN more TO text;;
ALTER TABLE t ALTER COLUMN n TYPE BIGINT;;
ALTER TABLE t DROP COLUMN text;;
ALTER TABLE t SET TBLPROPERTIES ('user.x' = '1');;
ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0);;
INSERT INTO t VALUES (-1, 1);;
ALTER TABLE t DROP CONSTRAINT positive;;
CREATE TABLE d (id INT) USING delta TBLPROPERTIES ('delta.feature.rowTracking' = 'supported');;
ALTER TABLE d DROP FEATURE rowTracking;;
COMMENT ON TABLE t IS 'numbers';;
DESCRIBE t;;
DESCRIBE DETAIL t;;
DESCRIBE HISTORY t;;
DESCRIBE HISTORY t LIMIT 1;;
SHOW COLUMNS IN t;;
SHOW TBLPROPERTIES t ('user.x');;
SHOW TABLES;;
SHOW CREATE TABLE t;;
OPTIMIZE t ZORDER BY (id);;
REORG TABLE t APPLY (PURGE);;
VACUUM t DRY RUN;;
RESTORE TABLE t TO VERSION AS OF 1;;
GENERATE symlink_format_manifest FOR TABLE d;;
INSERT OVERWRITE DIRECTORY '{home}/files' USING parquet SELECT * FROM VALUES (1), (2) AS v(id);;
CONVERT TO DELTA parquet.`{home}/files`;;
SELECT count(*) AS n FROM delta.`{home}/files`;;
TRUNCATE TABLE t;;
SELECT count(*) AS n FROM t;;
EXPLAIN SELECT id FROM t WHERE id = 3;;
EXPLAIN DELETE FROM t WHERE id = 3;;
EXECUTE IMMEDIATE 'INSERT INTO t VALUES (?, 5)' USING 8;;
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE i < 2 DO
    INSERT INTO t VALUES (i, i);
    SET i = i + 1;
  END WHILE;
  UPDATE t SET n = 77 WHERE id = 8;
  SELECT * FROM t ORDER BY id;
END;;
DELETE t WHERE;;
SELECT * FROM t VERSION AS OF 999;;
SELECT * FROM nowhere;;
DROP TABLE c;;
